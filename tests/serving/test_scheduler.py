"""The scheduler alone: what runs together, what is refused, what leaves the queue."""

import threading
import time
from collections.abc import Hashable, Iterator

import pytest

from models.errors import OverloadedError
from serving.scheduler import Scheduler, WorkItem

WAIT_S = 10


class Recorder:
    """Doubles numbers, batch by batch, once the gate is open; ``poison`` cannot be doubled."""

    def __init__(self) -> None:
        self.batches: list[tuple[Hashable, list[int]]] = []
        self.gate = threading.Event()
        self.busy = threading.Event()
        self.poison: int | None = None

    def __call__(self, key: Hashable, payloads: list[int]) -> list[int]:
        self.busy.set()
        assert self.gate.wait(WAIT_S)
        self.batches.append((key, payloads))
        if self.poison in payloads:
            raise ValueError("poison")
        return [2 * payload for payload in payloads]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def scheduler(recorder: Recorder) -> Iterator[Scheduler[int, int]]:
    made = Scheduler(recorder, max_queue_images=8, max_batch_images=4, max_batch_rows=12)
    yield made
    recorder.gate.set()
    made.close()


def submit(scheduler: Scheduler[int, int], *items: WorkItem[int, int]) -> list[WorkItem[int, int]]:
    with scheduler.reserve(len(items)) as room:
        for item in items:
            room.submit(item)
    return list(items)


def occupy(scheduler: Scheduler[int, int], recorder: Recorder) -> WorkItem[int, int]:
    """An item that keeps the thread busy until the gate opens."""
    [item] = submit(scheduler, WorkItem("first", 0))
    assert recorder.busy.wait(WAIT_S)
    return item


def test_items_of_one_key_share_a_batch_and_others_keep_their_order(
    scheduler: Scheduler[int, int], recorder: Recorder
) -> None:
    occupy(scheduler, recorder)
    items = submit(scheduler, *(WorkItem("ab"[n % 2], n) for n in range(1, 7)))
    recorder.gate.set()
    assert [item.future.result(WAIT_S).value for item in items] == [2, 4, 6, 8, 10, 12]
    assert recorder.batches == [("first", [0]), ("b", [1, 3, 5]), ("a", [2, 4, 6])]


def test_a_batch_is_bounded_in_images_and_in_rows(scheduler: Scheduler[int, int], recorder: Recorder) -> None:
    occupy(scheduler, recorder)
    items = submit(scheduler, *(WorkItem("thin", n) for n in range(5)), *(WorkItem("wide", n, 5) for n in range(3)))
    recorder.gate.set()
    for item in items:
        item.future.result(WAIT_S)
    assert [len(payloads) for _, payloads in recorder.batches] == [1, 4, 1, 2, 1]


def test_one_item_wider_than_a_batch_still_runs(scheduler: Scheduler[int, int], recorder: Recorder) -> None:
    recorder.gate.set()
    [item] = submit(scheduler, WorkItem("wide", 3, rows=100))
    assert item.future.result(WAIT_S).value == 6


def test_a_poisonous_item_fails_alone(scheduler: Scheduler[int, int], recorder: Recorder) -> None:
    occupy(scheduler, recorder)
    recorder.poison = 2
    items = submit(scheduler, *(WorkItem("a", n) for n in (1, 2, 3)))
    recorder.gate.set()
    assert [items[0].future.result(WAIT_S).value, items[2].future.result(WAIT_S).value] == [2, 6]
    with pytest.raises(ValueError, match="poison"):
        items[1].future.result(WAIT_S)
    assert scheduler.alive


def test_a_wrong_number_of_results_is_an_error_of_that_batch() -> None:
    short: Scheduler[int, int] = Scheduler(
        lambda _key, _payloads: [], max_queue_images=8, max_batch_images=4, max_batch_rows=12
    )
    [item] = submit(short, WorkItem("a", 1))
    with pytest.raises(RuntimeError, match="0 results for a batch of 1"):
        item.future.result(WAIT_S)
    short.close()


def test_the_queue_counts_images_and_refuses_what_does_not_fit(
    scheduler: Scheduler[int, int], recorder: Recorder
) -> None:
    occupy(scheduler, recorder)
    submit(scheduler, *(WorkItem("a", n) for n in range(3)))
    with scheduler.reserve(4):
        assert scheduler.queued_images == 7
        with pytest.raises(OverloadedError, match="7 images wait already and at most 8 may; 2 more do not fit"):
            scheduler.reserve(2)
    assert scheduler.queued_images == 3  # what was reserved and not used is given back


def test_a_cancelled_item_leaves_the_queue_and_never_runs(scheduler: Scheduler[int, int], recorder: Recorder) -> None:
    occupy(scheduler, recorder)
    items = submit(scheduler, *(WorkItem("a", n) for n in range(3)))
    assert items[1].future.cancel()
    assert scheduler.queued_images == 2
    recorder.gate.set()
    assert items[2].future.result(WAIT_S).value == 4
    assert recorder.batches[1] == ("a", [0, 2])


def test_an_item_whose_turn_comes_too_late_is_not_run(scheduler: Scheduler[int, int], recorder: Recorder) -> None:
    occupy(scheduler, recorder)
    [item] = submit(scheduler, WorkItem("a", 1, deadline=time.monotonic()))
    recorder.gate.set()
    with pytest.raises(OverloadedError) as caught:
        item.future.result(WAIT_S)
    assert caught.value.code == "deadline_exceeded"
    assert recorder.batches == [("first", [0])]


def test_waiting_time_is_told(scheduler: Scheduler[int, int], recorder: Recorder) -> None:
    occupy(scheduler, recorder)
    [item] = submit(scheduler, WorkItem("a", 1))
    time.sleep(0.05)
    recorder.gate.set()
    assert 0.05 <= item.future.result(WAIT_S).wait_s < WAIT_S


def test_draining_refuses_new_work_and_finishes_the_accepted(
    scheduler: Scheduler[int, int], recorder: Recorder
) -> None:
    running = occupy(scheduler, recorder)
    [waiting] = submit(scheduler, WorkItem("a", 1))
    room = scheduler.reserve(1)  # accepted, its image not open yet
    assert not scheduler.drain(0.05)
    with pytest.raises(OverloadedError) as caught:
        scheduler.reserve(1)
    assert caught.value.code == "shutting_down"
    late = room.submit(WorkItem("a", 2))
    recorder.gate.set()
    assert scheduler.drain(WAIT_S)
    assert [running.future.done(), waiting.future.result().value, late.result().value] == [True, 2, 4]


def test_closing_ends_the_thread_and_fails_what_could_not_finish(
    scheduler: Scheduler[int, int], recorder: Recorder
) -> None:
    occupy(scheduler, recorder)
    [waiting] = submit(scheduler, WorkItem("a", 1))
    closer = threading.Thread(target=scheduler.close, kwargs={"timeout_s": 0.1})
    closer.start()
    with pytest.raises(OverloadedError) as caught:
        waiting.future.result(WAIT_S)
    assert caught.value.code == "shutting_down"
    recorder.gate.set()
    closer.join(WAIT_S)
    scheduler._thread.join(WAIT_S)
    assert not scheduler.alive


def test_the_length_of_the_queue_is_told(recorder: Recorder) -> None:
    lengths: list[int] = []
    recorder.gate.set()
    scheduler = Scheduler(
        recorder, max_queue_images=8, max_batch_images=4, max_batch_rows=12, on_queue_change=lengths.append
    )
    submit(scheduler, *(WorkItem("a", n) for n in range(3)))
    scheduler.close()
    assert max(lengths) == 3
    assert lengths[-1] == 0
