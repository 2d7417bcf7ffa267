"""When the images of a job were opened, waited and worked on, as its trace tells it. Loads neither torch nor Ray."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serving.messages import CaptionReply, ScoreReply

if TYPE_CHECKING:
    from serving.batches import Pass


@dataclass(frozen=True)
class ImageTimes:
    """Of one image; times are seconds since the epoch."""

    taken_s: float
    """When its opening began, or the wait for that."""
    queued_s: float
    wait_s: float
    worked: "Pass | None" = None
    """None: the time of the job ended before its turn came."""

    @property
    def end_s(self) -> float:
        """When the work on it was done, or was given up."""
        worked = self.worked
        ms = worked.encode + worked.decode + worked.score if worked is not None else 0.0
        return self.queued_s + self.wait_s + ms / 1000


@dataclass
class JobTimes:
    """What is found out about a job while it is answered."""

    images: list[ImageTimes] = field(default_factory=list)
    reply: CaptionReply | ScoreReply | None = None


@dataclass(frozen=True)
class Stage:
    """A part of a job's time, seconds since the epoch."""

    name: str
    start_s: float
    end_s: float
    images: int
    """How many of the job shared it."""


def stages(images: Iterable[ImageTimes]) -> list[Stage]:
    """The stages of a job: of the images that were encoded together, those of the one that took longest, one behind
    the other. What an image did not need is left out."""
    groups: dict[tuple[int, int] | None, list[ImageTimes]] = {}
    for image in images:
        group = (image.worked.turn, image.worked.part) if image.worked is not None else None
        groups.setdefault(group, []).append(image)
    return [
        stage for group in groups.values() for stage in _of_one(max(group, key=lambda each: each.end_s), len(group))
    ]


def _of_one(image: ImageTimes, shared_by: int) -> Iterable[Stage]:
    began_s = image.queued_s + image.wait_s
    yield Stage("open", image.taken_s, image.queued_s, shared_by)
    yield Stage("queue", image.queued_s, began_s, shared_by)
    if image.worked is None:
        return
    for name, ms in (("encode", image.worked.encode), ("decode", image.worked.decode), ("score", image.worked.score)):
        if ms:
            yield Stage(name, began_s, began_s + ms / 1000, shared_by)
            began_s += ms / 1000
