"""What waits, in one lane per model: lanes take turns by the time they used, a lane's items go oldest first."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """What may wait here. Items of equal key are in one lane."""

    @property
    def key(self) -> Hashable: ...

    @property
    def lane(self) -> str: ...


Q = TypeVar("Q", bound=Queued)


Choose = Callable[[list[Q]], list[Q]]
"""Those that are taken of what waits with one key, oldest first."""


@dataclass(eq=False)
class _Lane(Generic[Q]):
    items: deque[Q] = field(default_factory=deque)
    used_s: float = 0.0
    turn: int = 0
    """The number of its last turn: of lanes that used as much, the one that waits longest is next."""

    def take(self, key: Hashable, choose: Choose[Q]) -> list[Q]:
        chosen = choose([item for item in self.items if item.key == key])
        gone = set(map(id, chosen))
        if gone:
            self.items = deque(item for item in self.items if id(item) not in gone)
        return chosen


class FairQueue(Generic[Q]):
    """Start-time fair queueing (Goyal, Vin and Cheng 1996) over lanes of equal weight: the next turn is that of the
    lane which used the least time. An item that comes into a lane without a recent turn waits for the pass under way
    and at most one turn of each other lane, however much waits there.

    An idle lane saves nothing up: when it comes back it starts where the others are now. Not for several threads.
    """

    def __init__(self, lanes: Iterable[str]) -> None:
        self._lanes: dict[str, _Lane[Q]] = {lane: _Lane() for lane in lanes}
        self._now_s = 0.0
        self._turns = 0

    def add_lane(self, lane: str) -> None:
        """One lane more, which is owed nothing."""
        self._lanes[lane] = _Lane(used_s=self._now_s)

    def drop_lane(self, lane: str) -> None:
        """A lane less, in which nothing may wait."""
        assert not self._lanes[lane].items
        del self._lanes[lane]

    def __len__(self) -> int:
        return sum(len(lane.items) for lane in self._lanes.values())

    def add(self, item: Q) -> None:
        """Put an item at the end of its lane."""
        if not len(self):  # nobody waits, so nobody is owed or owes anything
            self._now_s = max(lane.used_s for lane in self._lanes.values())
        lane = self._lanes[item.lane]
        if not lane.items:
            lane.used_s = max(lane.used_s, self._now_s)
        lane.items.append(item)

    def remove(self, item: Q) -> bool:
        """Take one item out, wherever it stands; false when it does not wait here."""
        items = self._lanes[item.lane].items
        if item not in items:
            return False
        items.remove(item)
        return True

    def take(self, choose: Choose[Q]) -> list[Q]:
        """What ``choose`` takes of the lane whose turn it is, of the oldest item and those of its key.

        There must be one; the order of the others is kept.
        """
        lane = min(
            (lane for lane in self._lanes.values() if lane.items), key=lambda waiting: (waiting.used_s, waiting.turn)
        )
        self._now_s = lane.used_s
        self._turns += 1
        lane.turn = self._turns
        return lane.take(lane.items[0].key, choose)

    def take_alike(self, lane: str, key: Hashable, choose: Choose[Q]) -> list[Q]:
        """What ``choose`` takes of a key's items, for a turn of their lane that is under way."""
        return self._lanes[lane].take(key, choose)

    def charge(self, lane: str, seconds: float) -> None:
        """Count the time of a pass against the lane that it ran for."""
        self._lanes[lane].used_s += seconds

    def clear(self) -> list[Q]:
        """All that waits, which then waits no more."""
        taken = [item for lane in self._lanes.values() for item in lane.items]
        for lane in self._lanes.values():
            lane.items.clear()
        return taken
