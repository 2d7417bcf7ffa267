"""Refusals are remembered for as long as they hold, for requests that are no smaller, and no longer."""

import asyncio
from typing import Any

import pytest

from models.errors import OverloadedError
from serving.full_queues import FullQueues
from serving.ingress import RayBackend
from serving.messages import ScoreJob, ScoreReply
from serving.scheduler import Scheduler, WorkItem
from tests.serving.test_ingress import Handle


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def refusal(full_for_s: float = 0.5) -> OverloadedError:
    return OverloadedError("queue_full", "96 images wait already", 4, full_for_s=full_for_s)


def is_refused(queues: FullQueues, model: str, images: int) -> bool:
    try:
        queues.check(model, images)
    except OverloadedError as error:
        assert (error.code, error.detail, error.retry_after_s) == ("queue_full", "96 images wait already", 4)
        return True
    return False


def test_as_many_images_for_the_same_model_are_refused_for_that_long() -> None:
    clock = Clock()
    queues = FullQueues(clock)
    assert not is_refused(queues, "dial", 8)
    queues.note("dial", 8, refusal())
    asked = [("dial", 8), ("dial", 9), ("dial", 7), ("concise", 8)]
    assert [is_refused(queues, *each) for each in asked] == [True, True, False, False]
    clock.now_s += 0.49
    assert is_refused(queues, "dial", 8)
    clock.now_s += 0.02
    assert not is_refused(queues, "dial", 32)


def test_never_for_long_and_not_at_all_where_nothing_is_known() -> None:
    clock = Clock()
    queues = FullQueues(clock)
    queues.note("dial", 1, refusal(full_for_s=0))
    assert not is_refused(queues, "dial", 1)
    queues.note("dial", 1, refusal(full_for_s=60))
    clock.now_s += 1.01
    assert not is_refused(queues, "dial", 1)


def test_every_request_is_refused_where_no_model_has_room_for_one_image() -> None:
    clock = Clock()
    queues = FullQueues(clock)
    assert queues.refusal(["dial"]) is None
    queues.note("dial", 2, refusal())
    assert queues.refusal(["dial"]) is None  # one image may fit
    queues.note("dial", 1, refusal())
    refused = queues.refusal(["dial"])
    assert refused is not None
    assert (refused.code, refused.detail, refused.retry_after_s) == ("queue_full", "96 images wait already", 4)
    assert queues.refusal(["dial", "concise"]) is None
    clock.now_s += 0.3
    queues.note("concise", 1, refusal())
    assert queues.refusal(["dial", "concise"]) is not None
    clock.now_s += 0.3
    assert queues.refusal(["dial", "concise"]) is None
    assert queues.refusal(["concise"]) is not None


def test_the_captioner_is_not_asked_meanwhile() -> None:
    asked = 0

    async def captioner(*arguments: object) -> Any:
        nonlocal asked
        asked += bool(arguments)
        return refusal(full_for_s=1) if arguments else True

    async def scenario() -> None:
        backend = RayBackend(Handle(captioner), Handle(captioner), ("fake",), deadline_s=5)  # type: ignore[arg-type]
        for _ in range(5):
            with pytest.raises(OverloadedError, match="96 images wait"):
                await backend.score(ScoreJob("r", "fake", (b"x",), (("a",),)))

    asyncio.run(scenario())
    assert asked == 1


def test_what_is_no_refusal_is_passed_on() -> None:
    async def captioner(*_arguments: object) -> Any:
        return ScoreReply(())

    async def scenario() -> None:
        backend = RayBackend(Handle(captioner), Handle(captioner), ("fake",), deadline_s=5)  # type: ignore[arg-type]
        assert await backend.score(ScoreJob("r", "fake", (b"x",), (("a",),))) == ScoreReply(())

    asyncio.run(scenario())


def test_the_scheduler_tells_when_an_eighth_of_the_lane_has_gone() -> None:
    times = iter(range(0, 1000, 2))  # every pass takes 2 s
    scheduler = Scheduler[int, int](
        lambda _key, payloads: payloads,
        max_queue_images=16,
        max_batch_images=1,
        max_batch_rows=1,
        timer=lambda: float(next(times)),
    )
    try:
        with pytest.raises(OverloadedError) as unknown:
            scheduler.reserve(17)
        assert unknown.value.full_for_s == 0  # no pass was seen
        with scheduler.reserve(1) as room:
            assert room.submit(WorkItem("key", 7)).result(30).value == 7
        with scheduler.reserve(16), pytest.raises(OverloadedError) as full:
            scheduler.reserve(1)
        assert full.value.full_for_s == pytest.approx(16 / 8 * 2)
    finally:
        scheduler.close()
