"""One thread that owns the models, and the bounded queue in front of it. Knows neither Ray nor torch."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

from models.errors import OverloadedError

logger = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Done(Generic[R]):
    """The result of one image, and how long it waited for its batch, seconds."""

    value: R
    wait_s: float


@dataclass(eq=False)
class WorkItem(Generic[P, R]):
    """One image of one request. Items of equal ``key`` may share a forward pass; ``rows`` is what one costs in it."""

    key: Hashable
    payload: P
    rows: int = 1
    deadline: float = float("inf")
    """On the clock of ``time.monotonic``."""
    future: "Future[Done[R]]" = field(default_factory=Future)
    submitted: float = field(default_factory=time.monotonic)


class Scheduler(Generic[P, R]):
    """Runs ``run_batch(key, payloads)`` on its own thread, oldest item first, with every waiting item of the same key
    that fits. ``run_batch`` returns one result per payload; an exception fails its batch only, and a batch of several
    is then repeated item by item, so that one poisonous image fails alone.

    The queue counts images from ``reserve`` (when a request arrives) until their batch starts or they are given up.
    """

    def __init__(
        self,
        run_batch: Callable[[Hashable, list[P]], Sequence[R]],
        *,
        max_queue_images: int,
        max_batch_images: int,
        max_batch_rows: int,
        on_queue_change: Callable[[int], None] = lambda _images: None,
    ) -> None:
        self._run_batch = run_batch
        self._max_queue_images = max_queue_images
        self._max_batch_images = max_batch_images
        self._max_batch_rows = max_batch_rows
        self._on_queue_change = on_queue_change
        self._changed = threading.Condition()
        self._waiting: deque[WorkItem[P, R]] = deque()
        self._reserved_images = 0
        self._running_images = 0
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
            return self._queued()

    def reserve(self, images: int) -> "Reservation[P, R]":
        """Room for the images of a request, all or none.

        Raises:
            OverloadedError: ``shutting_down``, or ``queue_full`` when they do not fit.
        """
        with self._changed:
            if self._closing:
                raise OverloadedError("shutting_down", "the server is shutting down; send the request to another one")
            queued = self._queued()
            if queued + images > self._max_queue_images:
                raise OverloadedError(
                    "queue_full",
                    f"{queued} images wait already and at most {self._max_queue_images} may; "
                    f"{images} more do not fit: try again shortly",
                )
            self._reserved_images += images
            self._notify()
        return Reservation(self, images)

    def _release(self, images: int) -> None:
        with self._changed:
            self._reserved_images -= images
            self._notify()

    def _submit(self, item: WorkItem[P, R]) -> None:
        item.future.add_done_callback(lambda future: self._forget(item) if future.cancelled() else None)
        with self._changed:
            self._reserved_images -= 1
            self._waiting.append(item)
            self._notify()

    def drain(self, timeout_s: float) -> bool:
        """Refuse new work and wait for what was accepted; false when some is left after ``timeout_s``."""
        with self._changed:
            self._closing = True
            return self._changed.wait_for(lambda: self._queued() + self._running_images == 0, timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Drain, fail what is left and end the thread."""
        self.drain(timeout_s)
        with self._changed:
            leftover, self._waiting = list(self._waiting), deque()
            self._notify()
        for item in leftover:
            if item.future.set_running_or_notify_cancel():
                item.future.set_exception(OverloadedError("shutting_down", "the server shut down before its turn came"))
        self._thread.join(timeout_s)

    def _queued(self) -> int:
        return self._reserved_images + len(self._waiting)

    def _notify(self) -> None:
        self._on_queue_change(self._queued())
        self._changed.notify_all()

    def _forget(self, item: WorkItem[P, R]) -> None:
        with self._changed:
            if item in self._waiting:
                self._waiting.remove(item)
                self._notify()

    def _loop(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._run(batch)

    def _next_batch(self) -> list[WorkItem[P, R]] | None:
        """The next items to run, at least one; None when closing and nothing waits."""
        while True:
            with self._changed:
                self._running_images = 0
                self._notify()
                self._changed.wait_for(lambda: self._waiting or (self._closing and self._queued() == 0))
                if not self._waiting:
                    return None
                picked = self._pick()
                self._running_images = len(picked)
                self._notify()
            batch = [item for item in picked if _start(item)]  # outside the lock: futures call back
            if batch:
                return batch

    def _pick(self) -> list[WorkItem[P, R]]:
        """Take the oldest item and those like it out of the queue; the order of the others is kept."""
        head = self._waiting[0]
        room = min(self._max_batch_images, max(1, self._max_batch_rows // max(1, head.rows)))
        picked: list[WorkItem[P, R]] = []
        others: deque[WorkItem[P, R]] = deque()
        for item in self._waiting:
            (picked if item.key == head.key and len(picked) < room else others).append(item)
        self._waiting = others
        return picked

    def _run(self, batch: list[WorkItem[P, R]]) -> None:
        started = time.monotonic()
        try:
            results = self._run_batch(batch[0].key, [item.payload for item in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{len(results)} results for a batch of {len(batch)}")
        except Exception as error:
            if len(batch) == 1:
                batch[0].future.set_exception(error)
                return
            logger.warning("a batch of %d failed (%r); its items run one by one", len(batch), error)
            for item in batch:
                self._run([item])
            return
        for item, result in zip(batch, results, strict=True):
            item.future.set_result(Done(result, started - item.submitted))


class Reservation(Generic[P, R]):
    """Places in the queue that one request holds. As a context manager it gives back what was not used."""

    def __init__(self, scheduler: Scheduler[P, R], images: int) -> None:
        self._scheduler = scheduler
        self._left = images

    def submit(self, item: WorkItem[P, R]) -> "Future[Done[R]]":
        """The future of an item that takes one of the places. Cancelling it takes the item out of the queue."""
        self._left -= 1
        self._scheduler._submit(item)
        return item.future

    def release(self, images: int = 1) -> None:
        """Give places back that will not be used."""
        self._left -= images
        self._scheduler._release(images)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release(self._left)


def _start(item: WorkItem[P, R]) -> bool:
    """Whether the item is to be run: neither cancelled nor too late."""
    if not item.future.set_running_or_notify_cancel():
        return False
    if time.monotonic() > item.deadline:
        item.future.set_exception(OverloadedError("deadline_exceeded", "its turn came after the deadline"))
        return False
    return True
