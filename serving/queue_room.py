"""How many images may wait, and the part of it that is kept for each lane."""

from collections.abc import Iterable


class QueueRoom:
    """Counts the images of every lane. Each lane is sure of a share that the others cannot take: half of an equal part
    of the queue, less where the largest request would no longer fit beside the shares of the others. Beyond the shares,
    who comes first takes. Not for several threads.
    """

    def __init__(self, max_images: int, lanes: Iterable[str], largest_request: int = 1) -> None:
        self.max_images, self._largest_request = max_images, largest_request
        self._held = dict.fromkeys(lanes, 0)
        self.share = self._fair_share()

    @property
    def held(self) -> int:
        """Images of all lanes."""
        return sum(self._held.values())

    def add(self, lane: str) -> None:
        """One lane more; the others' shares shrink, while what they hold stays."""
        self._held[lane] = 0
        self.share = self._fair_share()

    def drop(self, lane: str) -> None:
        """A lane less, which must hold nothing."""
        assert not self._held[lane]
        del self._held[lane]
        self.share = self._fair_share()

    def held_by(self, lane: str) -> int:
        """Images of one lane."""
        return self._held[lane]

    def left(self, lane: str) -> int:
        """Images that the lane may add now."""
        others = sum(max(self.share, held) for name, held in self._held.items() if name != lane)
        return max(0, self.max_images - others - self._held[lane])  # another lane may have come since

    def take(self, lane: str, images: int) -> None:
        """Count images in; ``left`` tells beforehand whether they fit."""
        self._held[lane] += images

    def give_back(self, lane: str, images: int) -> None:
        """Count images out."""
        self._held[lane] -= images

    def _fair_share(self) -> int:
        others = len(self._held) - 1
        beside = (self.max_images - self._largest_request) // others if others > 0 else 0
        return max(0, min(self.max_images // (2 * max(1, len(self._held))), beside))
