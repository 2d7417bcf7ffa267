"""The scheduler with several models: turns, room, sizes of passes, and that nothing is lost whatever happens.

Passes are let through one by one, and the clock that measures them is a number.
"""

import contextlib
import pickle
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterator

import pytest

from models.errors import OverloadedError
from serving.scheduler import Reservation, Scheduler, WorkItem

WAIT_S = 10


class Stepper:
    """A model that runs one pass when told to; an image costs what ``cost_s`` says of its key."""

    def __init__(self, **cost_s: float) -> None:
        self.cost_s = cost_s
        self.now_s = 0.0
        self._begun: queue.Queue[tuple[Hashable, list[int]]] = queue.Queue()
        self._go: queue.Queue[None] = queue.Queue()

    def __call__(self, key: Hashable, payloads: list[int]) -> list[int]:
        self._begun.put((key, payloads))
        self._go.get(timeout=WAIT_S)
        self.now_s += self.cost_s[str(key)] * len(payloads)
        return payloads

    def begun(self) -> tuple[Hashable, list[int]]:
        """The pass that is under way."""
        return self._begun.get(timeout=WAIT_S)

    def end(self) -> None:
        """Let it come to its end."""
        self._go.put(None)


@contextlib.contextmanager
def scheduling(stepper: Stepper, lanes: str = "ab", **bounds: float) -> "Iterator[Scheduler[int, int]]":
    options = {"max_queue_images": 100, "max_batch_images": 8, "max_batch_rows": 1000, **bounds}
    made: Scheduler[int, int] = Scheduler(stepper, lanes=lanes, timer=lambda: stepper.now_s, **options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        for _ in range(500):
            stepper.end()
        made.close()


def submit(scheduler: Scheduler[int, int], lane: str, count: int, first: int = 0) -> list[WorkItem[int, int]]:
    items = [WorkItem[int, int](lane, first + number, lane=lane) for number in range(count)]
    with scheduler.reserve(count, lane) as room:
        for item in items:
            room.submit(item)
    return items


def test_a_rare_request_runs_after_the_pass_under_way_however_many_wait_for_another_model() -> None:
    stepper = Stepper(a=0.1, b=0.3)
    with scheduling(stepper) as scheduler:
        submit(scheduler, "a", 60)
        assert stepper.begun()[0] == "a"
        for number in range(5):
            [rare] = submit(scheduler, "b", 1, first=number)
            stepper.end()
            assert stepper.begun() == ("b", [number])
            stepper.end()
            assert rare.future.result(WAIT_S).value == number
            assert stepper.begun()[0] == "a"


def test_two_floods_share_the_time() -> None:
    stepper = Stepper(a=0.01, b=0.1)
    with scheduling(stepper, target_pass_s=0.4) as scheduler:
        submit(scheduler, "a", 100 // 2)
        submit(scheduler, "b", 100 // 4)
        spent = Counter[Hashable]()
        for _ in range(100):
            key, payloads = stepper.begun()
            submit(scheduler, str(key), len(payloads))  # as many again: neither flood ends
            spent[key] += round(100 * stepper.cost_s[str(key)]) * len(payloads)
            stepper.end()
        assert 0.9 < spent["a"] / spent["b"] < 1.1


def test_many_keys_of_one_model_are_one_lane() -> None:
    stepper = Stepper(**{"b": 0.1, **{f"a{mix}": 0.1 for mix in range(20)}})
    with scheduling(stepper) as scheduler:
        with scheduler.reserve(20, "a") as room:
            for mix in range(20):
                room.submit(WorkItem(f"a{mix}", mix, lane="a"))
        submit(scheduler, "b", 16)
        order = []
        for _ in range(5):
            order.append(str(stepper.begun()[0])[0])
            stepper.end()
        assert "".join(order) in ("abaaa", "ababa")  # in time: b's first pass has several images


def test_a_flood_cannot_take_the_room_of_another_model() -> None:
    stepper = Stepper(a=0.5, b=0.1)
    with scheduling(stepper, max_queue_images=40, largest_request=10) as scheduler:
        submit(scheduler, "a", 1)
        stepper.begun()
        submit(scheduler, "a", 30)
        with pytest.raises(OverloadedError, match="30 images wait for 'a' already and other models keep their share"):
            scheduler.reserve(1, "a")
        submit(scheduler, "b", 10)
        with pytest.raises(OverloadedError, match="40 images wait already and at most 40 may; 1 more do not fit"):
            scheduler.reserve(1, "b")


def test_passes_are_as_large_as_their_time_allows() -> None:
    stepper = Stepper(a=1.0, b=0.01)
    with scheduling(stepper, target_pass_s=1.0) as scheduler:
        submit(scheduler, "a", 8)
        submit(scheduler, "b", 40)
        sizes: dict[Hashable, list[int]] = {"a": [], "b": []}
        for _ in range(11):
            key, payloads = stepper.begun()
            sizes[key].append(len(payloads))
            stepper.end()
        assert sizes == {"a": [4, 1, 1, 1, 1], "b": [4, 8, 8, 8, 8, 4]}


def test_a_refusal_tells_when_to_come_again() -> None:
    stepper = Stepper(a=0.25, b=0.25)
    with scheduling(stepper, lanes="a", max_queue_images=40) as scheduler:

        def refused(images: int) -> int | None:
            with pytest.raises(OverloadedError) as caught:
                scheduler.reserve(images, "a")
            assert pickle.loads(pickle.dumps(caught.value)).retry_after_s == caught.value.retry_after_s
            return caught.value.retry_after_s

        submit(scheduler, "a", 4)
        stepper.begun()
        held = scheduler.reserve(40, "a")
        assert refused(1) is None  # nothing measured yet
        held.release(40)
        stepper.end()
        submit(scheduler, "a", 8)
        stepper.begun()
        with scheduler.reserve(32, "a"):
            assert refused(30) == 8  # room for 30 at 0.25 s each
            assert refused(1000) == 60
            held = scheduler.reserve(8, "a")
            assert refused(1) == 5  # half of the 40 that wait
            held.release(8)


class Unreliable:
    """Fails on some images, gives the wrong number of results for some batches; counts how often an image ran well."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ran = Counter[int]()

    def __call__(self, _key: Hashable, payloads: list[int]) -> list[int]:
        if any(payload % 11 == 0 for payload in payloads):
            raise ValueError("poison")
        if len(payloads) > 1 and self.rng.random() < 0.1:
            return []
        self.ran.update(payloads)
        return [-payload for payload in payloads]


def _client(scheduler: Scheduler[int, int], rng: random.Random, first: int, found: dict[int, object]) -> None:
    """Requests of some images each: some places are given back, some items cancelled, the others awaited."""
    number = first
    for _ in range(40):
        lane = rng.choice("abc")
        count = rng.randint(1, 6)
        room: Reservation[int, int]
        try:
            room = scheduler.reserve(count, lane)
        except OverloadedError:
            continue
        with room:
            items = []
            for _ in range(rng.randint(0, count)):
                late = rng.random() < 0.05
                deadline = time.monotonic() if late else float("inf")
                items.append(WorkItem[int, int](lane + rng.choice("xyz"), number, deadline=deadline, lane=lane))
                number += 1
            for item in items:
                room.submit(item)
                if rng.random() < 0.2:
                    item.future.cancel()
        for item in items:
            if rng.random() < 0.1:
                item.future.cancel()
            try:
                found[item.payload] = item.future.result(WAIT_S).value
            except BaseException as error:  # CancelledError is no Exception
                found[item.payload] = type(error).__name__


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_done_twice(seed: int) -> None:
    model = Unreliable(random.Random(seed))
    lengths: list[int] = []
    scheduler: Scheduler[int, int] = Scheduler(
        model,
        max_queue_images=24,
        max_batch_images=4,
        max_batch_rows=12,
        lanes="abc",
        largest_request=6,
        on_queue_change=lengths.append,
    )
    found: list[dict[int, object]] = [{} for _ in range(6)]
    clients = [
        threading.Thread(target=_client, args=(scheduler, random.Random(100 * seed + n), 10_000 * n + 1, found[n]))
        for n in range(6)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join(60)
    assert scheduler.drain(WAIT_S) and scheduler.queued_images == 0
    assert 0 <= min(lengths) and max(lengths) <= 24
    assert scheduler.alive
    scheduler.close()
    assert not scheduler.alive
    outcomes = {payload: value for part in found for payload, value in part.items()}
    answered = {payload for payload, value in outcomes.items() if value == -payload}
    assert {payload for payload, value in outcomes.items() if value == "ValueError"} <= set(range(0, 10**6, 11))
    assert {str(value) for payload, value in outcomes.items() if payload not in answered} <= {
        "ValueError",
        "CancelledError",
        "OverloadedError",
    }
    assert answered == set(model.ran)  # what ran was told, what was cancelled never ran
    assert set(model.ran.values()) == {1}
    assert len(answered) > 100
