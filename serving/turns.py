"""Images that wait for a model, and the turns in which they get one."""

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from models.errors import OverloadedError

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Done(Generic[R]):
    """The result of one image, and how long it waited for its batch, seconds."""

    value: R
    wait_s: float


@dataclass(frozen=True)
class Account:
    """What a turn did for a while."""

    seconds: float
    done: int
    """Images that left."""
    images: int
    """Those under way when there were most."""
    rows: int
    """Theirs, in all."""


@dataclass(eq=False)
class WorkItem(Generic[P, R]):
    """One image of one request. Items of equal ``key`` may share a forward pass; ``rows`` is what one costs in it;
    ``lane`` is the model, whatever its mix: those with equal keys are in one lane."""

    key: Hashable
    payload: P
    rows: int = 1
    deadline: float = float("inf")
    """On the clock of ``time.monotonic``."""
    lane: str = ""
    future: "Future[Done[R]]" = field(default_factory=Future)
    submitted: float = field(default_factory=time.monotonic)
    given_up: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for the result any more: an item in a turn then leaves it."""

    def start(self) -> bool:
        """Whether the item is to be run: neither cancelled nor too late."""
        if not self.future.set_running_or_notify_cancel():
            return False
        if time.monotonic() > self.deadline:
            self.future.set_exception(OverloadedError("deadline_exceeded", "its turn came after the deadline"))
            return False
        return True


class Turn(Generic[P, R]):
    """Images of one key that a model works on together: those that the turn began with, numbered from 0, and those that
    joined since. For the thread that owns the model."""

    def __init__(
        self,
        batch: list[WorkItem[P, R]],
        timer: Callable[[], float],
        join: "Callable[[Turn[P, R]], list[WorkItem[P, R]]] | None" = None,
    ) -> None:
        """``join`` gives those who join now; None: nobody ever does."""
        self._join, self._timer = join, timer
        self.key, self.lane = batch[0].key, batch[0].lane
        self.under_way: dict[int, WorkItem[P, R]] = {}
        self.images = 0
        """All that ever took part."""
        self._waited_s: dict[int, float] = {}
        self._began = self._accounted = timer()
        self._done = self._most = self._most_rows = 0
        self._take_in(batch)

    @property
    def payloads(self) -> list[P]:
        """Of those under way."""
        return [item.payload for item in self.under_way.values()]

    @property
    def rows_under_way(self) -> int:
        """What those under way cost in a pass."""
        return sum(item.rows for item in self.under_way.values())

    @property
    def age_s(self) -> float:
        """Seconds since the turn began."""
        return self._timer() - self._began

    @property
    def seconds(self) -> float:
        """Seconds since ``take_account``."""
        return self._timer() - self._accounted

    def joining(self) -> list[P]:
        """Who joins now; they get the next numbers."""
        if self._join is None or not self.under_way:
            return []
        joined = self._join(self)
        self._take_in(joined)
        return [item.payload for item in joined]

    def leaving(self) -> list[int]:
        """Numbers of those that nobody waits for any more; they are under way no more."""
        gone = [number for number, item in self.under_way.items() if item.given_up.is_set()]
        for number in gone:
            late = OverloadedError("deadline_exceeded", "nobody waited for it any more")
            self._release(number).future.set_exception(late)
        self._done += len(gone)  # they took their part of the time
        return gone

    def finish(self, number: int, result: R) -> None:
        """Answer one of those under way."""
        waited_s = self._waited_s[number]
        self._release(number).future.set_result(Done(result, waited_s))
        self._done += 1

    def take_account(self) -> Account:
        """What was done since the last time."""
        account = Account(self.seconds, self._done, self._most, self._most_rows)
        self._accounted, self._done = self._timer(), 0
        self._most, self._most_rows = len(self.under_way), self.rows_under_way
        return account

    def _take_in(self, items: list[WorkItem[P, R]]) -> None:
        now = time.monotonic()
        for number, item in enumerate(items, self.images):
            self.under_way[number] = item
            self._waited_s[number] = now - item.submitted
        self.images += len(items)
        if len(self.under_way) > self._most:
            self._most, self._most_rows = len(self.under_way), self.rows_under_way

    def _release(self, number: int) -> WorkItem[P, R]:
        del self._waited_s[number]
        return self.under_way.pop(number)


def all_at_once(run_batch: Callable[[Hashable, list[P]], Sequence[R]], turn: Turn[P, R]) -> None:
    """Run a turn as one batch, which nobody joins."""
    payloads = turn.payloads
    results = run_batch(turn.key, payloads)
    if len(results) != len(payloads):
        raise RuntimeError(f"{len(results)} results for a batch of {len(payloads)}")
    for number, result in enumerate(results):
        turn.finish(number, result)
