"""What passes took, and how many images the next one may hold so that it is over in time."""

import math
from collections.abc import Hashable
from typing import NamedTuple, Protocol, Self, TypeVar

_FIRST_ROOM = 4
"""Images of the first pass of a sort: enough to learn from, few enough for a model that needs seconds for one."""
_NEW_WEIGHT = 0.5
_SLOWER_THAN_ONE = 1.5
_FORGET_EVERY = 64
_KEPT = 0.8


class PassKind(NamedTuple):
    """Passes that cost about the same per image: of one lane, one sort of work, and equally many rows an image."""

    lane: str
    sort: Hashable
    rows: int
    """Of an image, in the mean of those that share the pass, rounded up."""

    @classmethod
    def of(cls, work: "Work", images: int, rows: int) -> Self:
        """That of ``images`` with so many rows in all. Keys of one type with as many rows an image cost alike; a lane
        has too many keys to learn each."""
        return cls(work.lane, type(work.key), -(-rows // images))


class Work(Protocol):
    """What a pass is for."""

    @property
    def lane(self) -> str: ...

    @property
    def key(self) -> Hashable: ...


class Item(Work, Protocol):
    """One image."""

    @property
    def rows(self) -> int: ...


One = TypeVar("One", bound=Item)


class PassTimes:
    """Learns the seconds of a pass by its kind and size (in powers of two) and says how large the next may be to stay
    within ``target_s``. Where one image alone takes longer than that, a pass may take half as long again.

    A size never run is taken to need twice the time of half the size, and the next larger one is tried once, so that
    models for which many images cost little more than one grow to large passes. What larger passes took is forgotten
    now and then: a slow moment does not keep passes small for ever. Not for several threads.
    """

    def __init__(self, target_s: float, max_images: int, max_rows: float = math.inf) -> None:
        self._target_s = target_s
        self._max_images, self._max_rows = max_images, max_rows
        self._top = _size(max_images)
        self._times: dict[PassKind, dict[int, float]] = {}
        self._learned = 0
        self._recent_s = 0.0
        self._recent_images = 0.0

    @property
    def seconds_per_image(self) -> float | None:
        """The pace over the last passes of all kinds; None before the first."""
        return self._recent_s / self._recent_images if self._recent_images else None

    def room(self, kind: PassKind) -> int:
        """Images that the next pass of this kind may hold, at least 1."""
        times = self._times.get(kind) or self._guess(kind)
        if times is None:
            return min(_FIRST_ROOM, self._max_images)
        expected = self._expected(times)
        most_s = max(self._target_s, _SLOWER_THAN_ONE * min(times.values())) if 0 in times else self._target_s
        size = max((size for size, seconds in enumerate(expected) if seconds <= most_s), default=0)
        if size == max(times) and size < self._top:
            size += 1  # try it
        return min(1 << size, self._max_images)

    def fitting(self, alike: list[One], images: int = 0, rows: int = 0) -> list[One]:
        """The first of ``alike`` that fit into one pass, beside so many images with so many rows; one alone always
        fits. Nobody overtakes: who needs many rows would wait for ever."""
        for place, item in enumerate(alike):
            images, rows = images + 1, rows + item.rows
            if images > 1 and (rows > self._max_rows or images > self.room(PassKind.of(item, images, rows))):
                return alike[:place]
        return alike

    def learn(self, kind: PassKind, images: int, seconds: float) -> None:
        """Take in what a pass took that succeeded."""
        self._recent_s = _KEPT * self._recent_s + seconds
        self._recent_images = _KEPT * self._recent_images + images
        times = self._times.setdefault(kind, {})
        size = _size(images)
        now_s = times[size] = times.get(size, seconds) * (1 - _NEW_WEIGHT) + seconds * _NEW_WEIGHT
        for other, old_s in times.items():  # what is older must agree: more images take longer, at most in proportion
            bounds = sorted((now_s, now_s * 2.0 ** (other - size)))
            times[other] = min(max(old_s, bounds[0]), bounds[1])
        self._learned += 1
        if self._learned % _FORGET_EVERY == 0:
            for larger in [known for known in times if known > size]:
                del times[larger]

    def _guess(self, kind: PassKind) -> dict[int, float] | None:
        """For a kind never run: one image takes as long as in the slowest kind of the same lane and sort."""
        alike = [times for known, times in self._times.items() if known[:2] == kind[:2]]
        return {0: max(self._expected(times)[0] for times in alike)} if alike else None

    def _expected(self, times: dict[int, float]) -> list[float]:
        """Seconds by size: in proportion to it where unknown, none above what a larger pass took."""
        lowest = min(times)
        expected = [times[lowest] / (1 << (lowest - size)) for size in range(lowest + 1)]
        for size in range(lowest + 1, self._top + 1):
            known = [seconds for other, seconds in times.items() if other >= size]
            expected.append(min([2 * expected[-1], *known]))
        return expected


def _size(images: int) -> int:
    """The power of two that holds ``images``."""
    return (images - 1).bit_length()
