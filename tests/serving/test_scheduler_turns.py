"""The scheduler with a model whose images join and leave between steps, which are let through one by one."""

import contextlib
import queue
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from models.errors import OverloadedError
from serving.scheduler import Scheduler
from serving.turns import Turn, WorkItem

WAIT_S = 10


class Steps:
    """A model that needs as many steps for an image as its payload says and gives the payload back; a negative one
    cannot be done. A step, which ``begun`` tells of, costs ``step_s``."""

    def __init__(self, step_s: float = 0.0, gated: bool = True) -> None:
        self.now_s, self.step_s, self.gated = 0.0, step_s, gated
        self.joined: list[list[int]] = []
        self._begun: queue.Queue[tuple[str, list[int]]] = queue.Queue()
        self._go: queue.Queue[None] = queue.Queue()

    def __call__(self, turn: Turn[int, int]) -> None:
        left = dict(enumerate(turn.payloads))
        given = dict(left)
        while left:
            if self.gated:
                self._begun.put((str(turn.key), sorted(given[number] for number in left)))
                self._go.get(timeout=WAIT_S)
            self.now_s += self.step_s
            if any(payload < 0 for payload in left.values()):
                raise ValueError("poison")
            for number in list(left):
                left[number] -= 1
                if not left[number]:
                    del left[number]
                    turn.finish(number, given[number])
            for number in turn.leaving():
                del left[number]
            joined = turn.joining()
            for number, payload in enumerate(joined, len(given)):
                left[number] = given[number] = payload
            self.joined += [joined] if joined else []

    def begun(self) -> tuple[str, list[int]]:
        """Key and payloads of the step that is under way."""
        return self._begun.get(timeout=WAIT_S)

    def end(self) -> None:
        """Let the step come to its end."""
        self._go.put(None)


@contextlib.contextmanager
def scheduling(steps: Steps, **bounds: Any) -> "Iterator[Scheduler[int, int]]":
    options = {"max_queue_images": 100, "max_batch_images": 8, "max_batch_rows": 1000, "fewest_joining": 1, **bounds}
    made: Scheduler[int, int] = Scheduler(run_turn=steps, timer=lambda: steps.now_s, lanes="ab", **options)
    try:
        yield made
    finally:
        for _ in range(500):
            steps.end()
        made.close()


def submit(scheduler: Scheduler[int, int], *payloads: int, key: str = "a", rows: int = 1) -> list[WorkItem[int, int]]:
    items = [WorkItem[int, int](key, payload, rows, lane=key[0]) for payload in payloads]
    with scheduler.reserve(len(items), key[0]) as room:
        for item in items:
            room.submit(item)
    return items


def test_images_join_between_steps_and_are_answered_when_they_are_done() -> None:
    steps = Steps()
    with scheduling(steps) as scheduler:
        [long] = submit(scheduler, 3)
        assert steps.begun() == ("a", [3])
        short, other = submit(scheduler, 1), submit(scheduler, 2, key="a2")
        steps.end()
        assert steps.begun() == ("a", [1, 3])
        assert scheduler.queued_images == 1
        steps.end()
        assert short[0].future.result(WAIT_S).value == 1
        assert not long.future.done()
        assert steps.begun() == ("a", [3])
        steps.end()
        assert long.future.result(WAIT_S).value == 3
        assert steps.begun() == ("a2", [2])
        assert not other[0].future.done()


def test_joining_respects_the_bounds_of_a_pass() -> None:
    steps = Steps()
    with scheduling(steps, max_batch_rows=20) as scheduler:
        submit(scheduler, 1, 9, rows=5)
        steps.begun()
        submit(scheduler, *[2] * 8, rows=5)
        steps.end()
        assert steps.begun() == ("a", [2, 2, 2, 9])


def test_images_of_different_width_share_a_turn_within_its_rows() -> None:
    steps = Steps()
    with scheduling(steps, max_batch_rows=20) as scheduler:
        submit(scheduler, 1, rows=15)
        assert steps.begun() == ("a", [1])
        submit(scheduler, 9, rows=1)
        submit(scheduler, 2, rows=12)
        submit(scheduler, 3, rows=2)
        steps.end()
        assert steps.begun() == ("a", [2, 3, 9])
        submit(scheduler, 4, rows=6)  # 21
        submit(scheduler, 5, rows=1)
        steps.end()
        assert steps.begun() == ("a", [2, 3, 9])
        steps.end()
        assert steps.begun() == ("a", [3, 4, 5, 9])


def test_few_join_only_where_they_are_as_many_as_those_under_way() -> None:
    steps = Steps()
    with scheduling(steps, fewest_joining=3) as scheduler:
        submit(scheduler, 1, 1, 9)
        steps.begun()
        steps.end()
        assert steps.begun() == ("a", [9])
        submit(scheduler, 5)
        steps.end()
        assert steps.begun() == ("a", [5, 9])
        submit(scheduler, 5)
        steps.end()
        assert steps.begun() == ("a", [5, 9])  # one is half of two
        submit(scheduler, 5)
        steps.end()
        assert steps.begun() == ("a", [5, 5, 5, 9])


@pytest.mark.parametrize("other", ["b", "a2"])
def test_who_waits_for_another_model_or_key_is_not_kept_waiting_by_those_who_join(other: str) -> None:
    steps = Steps(step_s=0.125)
    with scheduling(steps, target_pass_s=1.0) as scheduler:
        submit(scheduler, 2)
        steps.begun()
        submit(scheduler, 1, key=other)
        begun = []
        while not begun or begun[-1][0] == "a":
            submit(scheduler, 2)
            steps.end()
            begun.append(steps.begun())
        assert begun[-1] == (other, [1])
        assert len(begun) <= 7  # half the target, and then the two steps of who joined last


def test_who_joins_all_the_time_leaves_others_half_of_it() -> None:
    steps = Steps(step_s=0.125)
    with scheduling(steps, target_pass_s=1.0) as scheduler:
        spent = {"a": 0, "b": 0}
        submit(scheduler, *[2] * 4)
        submit(scheduler, *[2] * 4, key="b")
        for _ in range(200):
            key, _payloads = steps.begun()
            spent[key] += 1
            submit(scheduler, 2, key="a")
            if spent["b"] % 2:
                submit(scheduler, 2, key="b")
            if scheduler.queued_images > 80:
                break
            steps.end()
        assert 0.6 < spent["a"] / spent["b"] < 1.6


def test_a_turn_that_does_not_end_tells_its_pace() -> None:
    steps = Steps(step_s=0.5)
    with scheduling(steps, target_pass_s=1.0) as scheduler:
        submit(scheduler, 2, 2)
        for _ in range(8):
            steps.begun()
            submit(scheduler, 2)
            steps.end()
        steps.begun()
        assert scheduler._times.seconds_per_image == pytest.approx(0.5, rel=0.5)


def test_who_is_given_up_leaves_the_turn() -> None:
    steps = Steps()
    with scheduling(steps) as scheduler:
        gone, stays = submit(scheduler, 5, 6)
        steps.begun()
        assert not gone.future.cancel()  # it runs
        gone.given_up.set()
        steps.end()
        assert steps.begun() == ("a", [6])
        with pytest.raises(OverloadedError):
            gone.future.result(WAIT_S)
        for _ in range(5):
            steps.end()
        assert stays.future.result(WAIT_S).value == 6


def test_a_cancelled_or_late_image_does_not_join() -> None:
    steps = Steps()
    with scheduling(steps) as scheduler:
        submit(scheduler, 3)
        steps.begun()
        [cancelled] = submit(scheduler, 4)
        late = WorkItem[int, int]("a", 5, deadline=time.monotonic(), lane="a")
        with scheduler.reserve(1, "a") as room:
            room.submit(late)
        cancelled.future.cancel()
        steps.end()
        assert steps.begun() == ("a", [3])
        with pytest.raises(OverloadedError, match="after the deadline"):
            late.future.result(WAIT_S)


def test_a_poisonous_image_that_joins_fails_alone_and_what_was_answered_stays_so() -> None:
    steps = Steps()
    with scheduling(steps) as scheduler:
        first, second = submit(scheduler, 1, 3)
        steps.begun()
        [poison] = submit(scheduler, -1)
        for _ in range(20):
            steps.end()
        assert [first.future.result(WAIT_S).value, second.future.result(WAIT_S).value] == [1, 3]
        with pytest.raises(ValueError, match="poison"):
            poison.future.result(WAIT_S)
        assert scheduler.alive


def test_draining_lets_the_accepted_join_and_waits_for_them() -> None:
    steps = Steps()
    with scheduling(steps) as scheduler:
        [running] = submit(scheduler, 2)
        steps.begun()
        [waiting] = submit(scheduler, 2)
        assert not scheduler.drain(0.05)
        for _ in range(3):
            steps.end()
        assert scheduler.drain(WAIT_S)
        assert running.future.done() and waiting.future.done()
        assert steps.joined == [[2]]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_mixed_up(seed: int) -> None:
    steps = Steps(gated=False)
    with scheduling(steps, max_queue_images=40, max_batch_images=5, fewest_joining=2) as scheduler:
        found: list[tuple[int, object]] = []

        def client(rng: random.Random) -> None:
            for _ in range(60):
                payload, key = rng.choice([1, 2, 3, 7, -1]), rng.choice(["a", "a2", "b"])
                try:
                    [item] = submit(scheduler, payload, key=key)
                    if rng.random() < 0.2:
                        item.given_up.set()
                    found.append((payload, item.future.result(WAIT_S).value))
                except (OverloadedError, ValueError) as error:
                    found.append((payload, type(error)))

        clients = [threading.Thread(target=client, args=(random.Random(10 * seed + n),)) for n in range(8)]
        for each in clients:
            each.start()
        for each in clients:
            each.join(60)
        assert len(found) == 8 * 60
        answered = [(payload, value) for payload, value in found if isinstance(value, int)]
        assert all(payload == value for payload, value in answered) and len(answered) > 100
        assert {value for payload, value in found if payload < 0} <= {ValueError, OverloadedError}
        assert scheduler.drain(WAIT_S) and scheduler.queued_images == 0
