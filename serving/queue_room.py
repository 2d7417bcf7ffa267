"""How many images may wait, and the part of it that is kept for each lane."""

from collections.abc import Iterable


class QueueRoom:
    """Counts the images of every lane. Each lane is sure of a share that the others cannot take: half of an equal part
    of the queue, less where the largest request would no longer fit beside the shares of the others. Beyond the shares,
    who comes first takes. Not for several threads.
    """

    def __init__(self, max_images: int, lanes: Iterable[str], largest_request: int = 1) -> None:
        self.max_images = max_images
        self._held = dict.fromkeys(lanes, 0)
        others = len(self._held) - 1
        beside = (max_images - largest_request) // others if others else 0
        self.share = max(0, min(max_images // (2 * len(self._held)), beside))

    @property
    def held(self) -> int:
        """Images of all lanes."""
        return sum(self._held.values())

    def held_by(self, lane: str) -> int:
        """Images of one lane."""
        return self._held[lane]

    def left(self, lane: str) -> int:
        """Images that the lane may add now."""
        others = sum(max(self.share, held) for name, held in self._held.items() if name != lane)
        return self.max_images - others - self._held[lane]

    def take(self, lane: str, images: int) -> None:
        """Count images in; ``left`` tells beforehand whether they fit."""
        self._held[lane] += images

    def give_back(self, lane: str, images: int) -> None:
        """Count images out."""
        self._held[lane] -= images
