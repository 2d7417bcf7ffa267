"""One thread that owns the models, and the bounded queue in front of it. Knows neither Ray nor torch."""

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Generic, Self

from models.errors import OverloadedError
from serving.fair_queue import FairQueue
from serving.pass_times import PassKind, PassTimes
from serving.queue_room import QueueRoom
from serving.turns import Done, P, R, Turn, WorkItem, all_at_once

__all__ = ["Done", "Reservation", "Scheduler", "WorkItem"]

logger = logging.getLogger(__name__)

_LONGEST_RETRY_S = 60
_FULL_SHARE = 1 / 8
"""A queue counts as full until this share of a lane's images has gone."""


class Scheduler(Generic[P, R]):
    """Runs ``run_batch(key, payloads)`` on its own thread: lanes in fair turns, a lane's oldest item first, with those
    of the same key, oldest first, that fit into ``target_pass_s`` and ``max_batch_rows``. ``run_batch`` returns one
    result per payload; an exception fails its batch only, and a batch of several is then repeated item by item, so that
    one poisonous image fails alone.

    ``run_turn``, where given, runs in place of ``run_batch``: it gets the turn itself, tells each result as soon as it
    is there, and may ask between steps who joins. Images join for as long as others are under way, but only in the
    first half of ``target_pass_s`` where somebody waits who cannot; fewer than ``fewest_joining`` at a time only where
    they are as many as those under way.

    The queue counts images from ``reserve`` (when a request arrives) until their batch starts or they are given up.
    Every lane is sure of a share of it, beside which a request of ``largest_request`` images still fits. ``timer`` is
    the clock that passes are measured with.
    """

    def __init__(
        self,
        run_batch: Callable[[Hashable, list[P]], Sequence[R]] | None = None,
        *,
        max_queue_images: int,
        max_batch_images: int,
        max_batch_rows: int,
        lanes: Sequence[str] = ("",),
        largest_request: int = 1,
        target_pass_s: float = math.inf,
        run_turn: Callable[[Turn[P, R]], None] | None = None,
        fewest_joining: int = 8,
        timer: Callable[[], float] = time.monotonic,
        on_queue_change: Callable[[int], None] = lambda _images: None,
    ) -> None:
        if run_turn is None:
            assert run_batch is not None
            run_turn = partial(all_at_once, run_batch)
        self._run_turn = run_turn
        self._target_pass_s = target_pass_s
        self._fewest_joining = fewest_joining
        self._timer = timer
        self._on_queue_change = on_queue_change
        self._changed = threading.Condition()
        self._room = QueueRoom(max_queue_images, lanes, largest_request)
        self._waiting: FairQueue[WorkItem[P, R]] = FairQueue(lanes)
        self._times = PassTimes(target_pass_s, max_batch_images, max_batch_rows)
        self._running_images = 0
        self._running_lane: str | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="limner-scheduler", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the model thread runs; false after ``close`` or a failure of the scheduler itself."""
        return self._thread.is_alive()

    @property
    def queued_images(self) -> int:
        """Images that wait: reserved and not yet submitted, or submitted and not yet in a batch."""
        with self._changed:
            return self._room.held

    def add_lane(self, lane: str) -> None:
        """One lane more."""
        with self._changed:
            self._room.add(lane)
            self._waiting.add_lane(lane)

    def drop_lane(self, lane: str) -> bool:
        """A lane less, for which nothing may be reserved any more; false, and nothing happens, while it is in use."""
        with self._changed:
            if self._room.held_by(lane) or self._running_lane == lane:
                return False
            self._room.drop(lane)
            self._waiting.drop_lane(lane)
            return True

    def reserve(self, images: int, lane: str = "") -> "Reservation[P, R]":
        """Room for the images of a request, all or none.

        Raises:
            OverloadedError: ``shutting_down``, or ``queue_full`` when they do not fit, with ``retry_after_s``.
        """
        with self._changed:
            if self._closing:
                raise OverloadedError("shutting_down", "the server is shutting down; send the request to another one")
            if images > self._room.left(lane):
                raise self._full(images, lane)
            self._room.take(lane, images)
            self._notify()
        return Reservation(self, images, lane)

    def _full(self, images: int, lane: str) -> OverloadedError:
        room = self._room
        if room.held + images > room.max_images:
            why = f"{room.held} images wait already and at most {room.max_images} may"
        else:
            why = (
                f"{room.held_by(lane)} images wait for {lane!r} already and other models keep their share of the queue"
            )
        return OverloadedError(
            "queue_full",
            f"{why}; {images} more do not fit: try again shortly",
            self._retry_s(images),
            full_for_s=_FULL_SHARE * room.held_by(lane) * (self._times.seconds_per_image or 0.0),
        )

    def _retry_s(self, images: int) -> int | None:
        """Whole seconds until half the queue has gone, or room for ``images``; None before the first pass."""
        pace_s = self._times.seconds_per_image
        if pace_s is None:
            return None
        to_go = max(images, self._room.held // 2)
        return min(_LONGEST_RETRY_S, max(1, math.ceil(to_go * pace_s)))

    def _extend(self, images: int, lane: str) -> None:
        with self._changed:
            self._room.take(lane, images)
            self._notify()

    def _release(self, images: int, lane: str) -> None:
        with self._changed:
            self._room.give_back(lane, images)
            self._notify()

    def _submit(self, item: WorkItem[P, R]) -> None:
        # A future keeps its callbacks: with the item among them, its image would stay until a garbage collection.
        known = weakref.ref(item)
        item.future.add_done_callback(lambda future: self._forget(known()) if future.cancelled() else None)
        with self._changed:
            self._waiting.add(item)
            self._notify()

    def drain(self, timeout_s: float) -> bool:
        """Refuse new work and wait for what was accepted; false when some is left after ``timeout_s``."""
        with self._changed:
            self._closing = True
            return self._changed.wait_for(lambda: self._room.held + self._running_images == 0, timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Drain, fail what is left and end the thread."""
        self.drain(timeout_s)
        with self._changed:
            leftover = self._waiting.clear()
            for item in leftover:
                self._room.give_back(item.lane, 1)
            self._notify()
        for item in leftover:
            if item.future.set_running_or_notify_cancel():
                item.future.set_exception(OverloadedError("shutting_down", "the server shut down before its turn came"))
        self._thread.join(timeout_s)

    @property
    def _reserved_images(self) -> int:
        """Images counted whose item has not come yet."""
        return self._room.held - len(self._waiting)

    def _notify(self) -> None:
        self._on_queue_change(self._room.held)
        self._changed.notify_all()

    def _forget(self, item: WorkItem[P, R] | None) -> None:
        with self._changed:
            if item is not None and self._waiting.remove(item):
                self._room.give_back(item.lane, 1)
                self._notify()

    def _loop(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._run(batch)
            del batch  # its images are not kept until the next one comes

    def _next_batch(self) -> list[WorkItem[P, R]] | None:
        """The next items to run, at least one; None when closing and nothing waits."""
        while True:
            with self._changed:
                self._running_images, self._running_lane = 0, None
                self._notify()
                self._changed.wait_for(lambda: len(self._waiting) or (self._closing and not self._room.held))
                if not len(self._waiting):
                    return None
                picked = self._waiting.take(self._times.fitting)
                self._room.give_back(picked[0].lane, len(picked))
                self._running_images, self._running_lane = len(picked), picked[0].lane
                self._notify()
            batch = [item for item in picked if item.start()]  # outside the lock: futures call back
            if batch:
                return batch

    def _run(self, batch: list[WorkItem[P, R]], *, joinable: bool = True) -> None:
        turn = Turn(batch, self._timer, self._joining if joinable else None)
        try:
            self._run_turn(turn)
            if turn.under_way:
                raise RuntimeError(f"{len(batch) - len(turn.under_way)} results for a batch of {len(batch)}")
        except Exception as error:
            with self._changed:
                self._take_account(turn, failed=True)
            lost = list(turn.under_way.values())
            if turn.images == 1 and lost:
                lost[0].future.set_exception(error)
                return
            logger.warning("a batch of %d failed (%r); its items run one by one", len(lost), error)
            del turn, batch
            for item in lost:
                self._run([item], joinable=False)
            return
        with self._changed:
            self._take_account(turn)

    def _joining(self, turn: Turn[P, R]) -> list[WorkItem[P, R]]:
        """Who joins a turn now."""

        def choose(alike: list[WorkItem[P, R]]) -> list[WorkItem[P, R]]:
            if len(alike) < len(self._waiting) and turn.age_s > self._target_pass_s / 2:
                return []
            fitting = self._times.fitting(alike, len(turn.under_way), turn.rows_under_way)
            return fitting if len(fitting) >= min(self._fewest_joining, len(turn.under_way)) else []

        with self._changed:
            if turn.seconds > self._target_pass_s:  # a turn may go on as long as somebody joins
                self._take_account(turn)
            picked = self._waiting.take_alike(turn.lane, turn.key, choose)
            if not picked:
                return []
            self._room.give_back(turn.lane, len(picked))
            self._running_images += len(picked)
            self._notify()
        return [item for item in picked if item.start()]  # outside the lock: futures call back

    def _take_account(self, turn: Turn[P, R], *, failed: bool = False) -> None:
        """Take in what the turn took since the last time, as if a pass of all that were under way at a time."""
        account = turn.take_account()
        self._waiting.charge(turn.lane, account.seconds)
        if account.done and not failed:
            kind = PassKind.of(turn, account.images, account.rows)
            self._times.learn(kind, account.images, account.seconds * account.images / account.done)


class Reservation(Generic[P, R]):
    """Places in the queue that one request holds. As a context manager it gives back what was not used."""

    def __init__(self, scheduler: Scheduler[P, R], images: int, lane: str) -> None:
        self._scheduler = scheduler
        self._left = images
        self._lane = lane

    def submit(self, item: WorkItem[P, R]) -> "Future[Done[R]]":
        """The future of an item of the reservation's lane, which takes one of the places. Cancelling it takes the item
        out of the queue."""
        assert item.lane == self._lane
        self._left -= 1
        self._scheduler._submit(item)
        return item.future

    def extend(self, images: int) -> None:
        """More places for what was accepted already: given whatever waits, also while draining."""
        self._left += images
        self._scheduler._extend(images, self._lane)

    def release(self, images: int = 1) -> None:
        """Give places back that will not be used."""
        self._left -= images
        self._scheduler._release(images, self._lane)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release(self._left)
