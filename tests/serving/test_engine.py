"""The engine without Ray or HTTP: whose captions are whose, what fails alone, what leaves in time."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from models.decoding import parse_decode
from models.errors import OverloadedError, RequestError, UnknownNameError
from serving import metrics
from serving.args import AppArgs, Limits
from serving.batches import Pass, stages_ms
from serving.engine import Engine
from serving.messages import CaptionJob, Failure, ScoreJob
from serving.model_pool import LoadedModel
from serving.reports import Reporter
from tests.serving.support import GatedPipeline, pictures, png

BEAM = parse_decode(None)
GREEDY = parse_decode({"name": "greedy"})


def job(*images: bytes | Failure, **fields: Any) -> CaptionJob:
    return CaptionJob(**{"request_id": "r", "model": "fake", "images": images, "strategy": BEAM, **fields})


@asynccontextmanager
async def running(pipeline: GatedPipeline, **limits: Any) -> AsyncIterator[Engine]:
    args = AppArgs(models=("fake",), target_pass_s=60, limits=Limits(**limits))  # a gate may be shut for long
    engine = Engine({"fake": LoadedModel(pipeline)}, args, REPORTER)
    try:
        yield engine
    finally:
        pipeline.gate.set()
        engine.close()


REPORTER = Reporter("test", metrics.REPORTS_LOST)


def run(pipeline: GatedPipeline, scenario: Callable[[Engine], Awaitable[None]], **limits: Any) -> None:
    async def whole() -> None:
        async with running(pipeline, **limits) as engine:
            await scenario(engine)

    asyncio.run(whole())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def test_images_of_several_requests_share_a_pass_and_keep_their_captions() -> None:
    pipeline = GatedPipeline()

    async def scenario(engine: Engine) -> None:
        images = pictures(6)
        alone = [(await engine.caption(job(image))).results[0] for image in images]
        pipeline.batches.clear()
        pipeline.arrived.clear()
        pipeline.gate.clear()
        first = asyncio.create_task(engine.caption(job(images[0])))
        await until(pipeline.arrived.is_set)
        others = [asyncio.create_task(engine.caption(job(images[1], images[n]))) for n in (2, 3)]
        others.append(asyncio.create_task(engine.caption(job(images[4], images[5], strategy=GREEDY))))
        await until(lambda: engine._scheduler.queued_images == 6 and not engine._scheduler._reserved_images)
        pipeline.gate.set()
        assert (await first).results[0] == alone[0]
        assert [list((await task).results) for task in others[:2]] == [[alone[1], alone[2]], [alone[1], alone[3]]]
        found = (await others[2]).results
        assert pipeline.batches == [1]  # all joined the first image between its steps
        assert found[0] == (await engine.caption(job(images[4], strategy=GREEDY))).results[0]

    run(pipeline, scenario)


def test_seeds_belong_to_images_not_to_batches() -> None:
    pipeline = GatedPipeline()

    def sample(seed: int | None) -> CaptionJob:
        return job(png(), strategy=parse_decode({"name": "sample", "options": {"seed": seed}}), num_captions=3)

    async def scenario(engine: Engine) -> None:
        alone = {seed: (await engine.caption(sample(seed))).results for seed in (1, 2)}
        assert alone[1] != alone[2]
        pipeline.arrived.clear()
        pipeline.gate.clear()
        tasks = [asyncio.create_task(engine.caption(sample(seed))) for seed in (7, 1, None, 2, None)]
        await until(lambda: not engine._scheduler._reserved_images)
        pipeline.gate.set()
        found = [(await task).results for task in tasks]
        assert [found[1], found[3]] == [alone[1], alone[2]]
        assert found[2] != found[4]  # no seed: each its own

    run(pipeline, scenario)


def test_a_bad_image_fails_alone() -> None:
    async def scenario(engine: Engine) -> None:
        refused = Failure("url_refused", "no")
        reply = await engine.caption(job(b"not a picture", refused, png(), b""))
        codes = [result.error and result.error.code for result in reply.results]
        assert codes == ["not_an_image", "url_refused", None, "empty"]
        assert [len(result.captions) for result in reply.results] == [0, 0, 1, 0]
        assert engine._scheduler.queued_images == 0

    run(GatedPipeline(), scenario)


def test_times_are_told() -> None:
    async def scenario(engine: Engine) -> None:
        timing = (await engine.caption(job(*pictures(3)))).timing_ms
        assert timing.queue >= 0 and timing.encode > 0 and timing.decode > 0 and timing.score == 0

    run(GatedPipeline(), scenario)


def test_times_of_images_that_shared_a_pass_count_once() -> None:
    shared = [Pass(encode=8, decode=5, turn=1), Pass(encode=8, decode=9, turn=1)]
    joined = Pass(encode=3, decode=2, score=4, turn=1, part=1)
    other = [Pass(encode=1, decode=1, score=2, turn=2), Pass(encode=1, decode=1, score=2, turn=2)]
    assert stages_ms([*shared, joined, *other]) == Pass(encode=12, decode=10, score=6)
    assert stages_ms([]) == Pass()


def test_too_many_waiting_images_are_refused_and_the_waiting_ones_answered() -> None:
    pipeline = GatedPipeline()

    async def scenario(engine: Engine) -> None:
        pipeline.gate.clear()
        first = asyncio.create_task(engine.caption(job(png())))
        await until(pipeline.arrived.is_set)
        waiting = asyncio.create_task(engine.caption(job(*pictures(4))))
        await until(lambda: engine._scheduler.queued_images == 4)
        with pytest.raises(OverloadedError) as caught:
            await engine.caption(job(png()))
        assert caught.value.code == "queue_full"
        pipeline.gate.set()
        assert len((await waiting).results) == 4
        assert (await first).results[0].captions

    run(pipeline, scenario, max_images=4, max_queue_images=4)


def test_a_late_answer_is_an_error_and_leaves_nothing_behind() -> None:
    pipeline = GatedPipeline()

    async def scenario(engine: Engine) -> None:
        pipeline.gate.clear()
        first = asyncio.create_task(engine.caption(job(png())))
        await until(pipeline.arrived.is_set)
        for task in (first, asyncio.create_task(engine.caption(job(*pictures(3))))):
            with pytest.raises(OverloadedError) as caught:
                await task
            assert caught.value.code == "deadline_exceeded"
        assert engine._scheduler.queued_images == 0
        pipeline.gate.set()
        assert await asyncio.to_thread(engine.drain, 10)
        assert pipeline.batches == [1]  # the late three never ran

    run(pipeline, scenario, deadline_s=0.3)


def test_a_cancelled_request_leaves_the_queue() -> None:
    pipeline = GatedPipeline()

    async def scenario(engine: Engine) -> None:
        pipeline.gate.clear()
        first = asyncio.create_task(engine.caption(job(png())))
        await until(pipeline.arrived.is_set)
        leaving = asyncio.create_task(engine.caption(job(*pictures(3))))
        await until(lambda: engine._scheduler.queued_images == 3)
        leaving.cancel()
        await until(lambda: engine._scheduler.queued_images == 0)
        pipeline.gate.set()
        await first
        assert pipeline.batches == [1]

    run(pipeline, scenario)


def test_a_request_cancelled_at_once_gives_its_places_back() -> None:
    async def scenario(engine: Engine) -> None:
        for delay_s in (0.0, 0.001, 0.003):
            task = asyncio.create_task(engine.caption(job(*pictures(8))))
            await asyncio.sleep(delay_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await until(lambda: engine._scheduler.queued_images == 0)

    run(GatedPipeline(), scenario)


def test_few_decoded_pixels_wait_at_a_time() -> None:
    pipeline = GatedPipeline()

    async def scenario(engine: Engine) -> None:
        pipeline.gate.clear()
        task = asyncio.create_task(engine.caption(job(*[png(size=(100, 100))] * 12)))
        await until(pipeline.arrived.is_set)
        await asyncio.sleep(0.1)
        assert len(engine._scheduler._waiting) <= 3  # 4 fit in memory, one of them is in the pass
        pipeline.gate.set()
        assert all(result.captions for result in (await task).results)

    run(pipeline, scenario, max_waiting_px=40_000)


def test_a_flood_of_large_pictures_for_one_model_does_not_keep_those_for_another_from_being_opened() -> None:
    order: list[str] = []

    class Named(GatedPipeline):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def caption_asks(self, asks: Any, company: Any = None) -> Any:
            result = super().caption_asks(asks, company)
            order.append(self.name)
            return result

    flooded, rare = Named("flooded"), Named("rare")

    async def scenario() -> None:
        limits = Limits(max_waiting_px=40_000)  # 4 pictures
        served = {"flooded": LoadedModel(flooded), "rare": LoadedModel(rare)}
        engine = Engine(served, AppArgs(models=("fake",), limits=limits), REPORTER)
        flooded.gate.clear()
        pictures_of = [png(size=(100, 100))] * 30
        flood = asyncio.create_task(engine.caption(job(*pictures_of, model="flooded")))
        await until(lambda: flooded.arrived.is_set() and bool(engine._waiting_px._waiters["flooded"]))
        asked = asyncio.create_task(engine.caption(job(png(size=(100, 100)), model="rare")))
        await until(lambda: bool(engine._waiting_px._waiters.get("rare")))  # open, although the flood fills the memory
        flooded.gate.set()
        assert (await asked).results[0].captions
        assert all(result.captions for result in (await flood).results)
        assert order.index("rare") <= 2  # after the pass under way and the one that was ready
        engine.close()

    asyncio.run(scenario())


def test_draining() -> None:
    pipeline = GatedPipeline()

    async def scenario(engine: Engine) -> None:
        pipeline.gate.clear()
        accepted = asyncio.create_task(engine.caption(job(*pictures(3))))
        await until(pipeline.arrived.is_set)
        drained = asyncio.create_task(asyncio.to_thread(engine.drain, 10))
        await until(lambda: engine._scheduler._closing)
        with pytest.raises(OverloadedError) as caught:
            await engine.caption(job(png()))
        assert caught.value.code == "shutting_down"
        pipeline.gate.set()
        assert await drained
        assert all(result.captions for result in (await accepted).results)

    run(pipeline, scenario)


def test_what_the_model_cannot_do_is_refused_before_queueing() -> None:
    async def scenario(engine: Engine) -> None:
        with pytest.raises(UnknownNameError, match="no model 'other' here; there are: fake"):
            await engine.caption(job(png(), model="other"))
        with pytest.raises(RequestError, match="without a scorer"):
            await engine.caption(job(png(), score=True))
        with pytest.raises(RequestError, match="unsupported_option: .*guidance 2: .*'fake'"):
            await engine.caption(job(b"no picture", strategy=parse_decode({"guidance": 2})))
        with pytest.raises(RequestError, match="without a scorer"):
            await engine.score(ScoreJob("r", "fake", (png(),), (("a",),)))
        assert (await engine.caption(job(png()))).results[0].captions[0].clip_score is None

    run(GatedPipeline(), scenario)


def test_an_unexpected_failure_of_the_model_is_told_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(GatedPipeline):
        def caption_asks(self, *_args: Any, **_options: Any) -> Any:
            raise ZeroDivisionError("a secret")

    async def scenario(engine: Engine) -> None:
        [result] = (await engine.caption(job(png()))).results
        assert result.error is not None and result.error.code == "internal_error"
        assert "secret" not in result.error.detail
        assert "request r: an image failed" in caplog.text

    run(Broken(), scenario)


def test_an_answered_request_leaves_nothing_in_memory() -> None:
    """Without the garbage collector's help: pictures and mixes are too large to wait for it."""
    pipeline = GatedPipeline()
    opened: list[weakref.ref[Any]] = []
    preprocess = pipeline.captioner.preprocess

    def watched(image: Any) -> Any:
        opened.append(weakref.ref(image))
        return preprocess(image)

    async def scenario(engine: Engine) -> None:
        pipeline.captioner.preprocess = watched  # type: ignore[method-assign]
        gc.disable()
        try:
            await engine.caption(job(*pictures(3)))
            await until(lambda: all(image() is None for image in opened))
            assert len(opened) == 3
        finally:
            gc.enable()

    run(pipeline, scenario)


def test_the_making_of_a_mix_waits_in_the_queue() -> None:
    """So the bound of the queue and the deadline hold for it, and a flood of mixes is refused like any other."""
    pipeline = GatedPipeline()

    async def scenario(engine: Engine) -> None:
        made = asyncio.Event()

        @asynccontextmanager
        async def slow(model: str, coefficients: Any) -> AsyncIterator[Any]:
            await made.wait()
            yield pipeline

        engine._models.lease = slow  # type: ignore[method-assign]
        waiting = [asyncio.create_task(engine.caption(job(*pictures(2)))) for _ in range(2)]
        await until(lambda: engine._scheduler.queued_images == 4)
        with pytest.raises(OverloadedError, match="4 images wait already"):
            await engine.caption(job(png()))
        made.set()
        assert [len((await task).results) for task in waiting] == [2, 2]
        made.clear()
        engine._deadline_s = 0.05
        with pytest.raises(OverloadedError, match="no answer within"):
            await engine.caption(job(png()))
        assert engine._scheduler.queued_images == 0

    run(pipeline, scenario, max_images=4, max_queue_images=4)


def test_what_waits_for_a_model_is_not_captioned_by_its_next_version() -> None:
    old, new = GatedPipeline(), GatedPipeline()
    old.gate.clear()

    async def scenario(engine: Engine) -> None:
        first = asyncio.create_task(engine.caption(job(png())))
        await until(old.arrived.is_set)
        waiting = asyncio.create_task(engine.caption(job(png("blue"))))
        await until(lambda: engine._scheduler.queued_images == 1)
        engine.put_model("fake", LoadedModel(new))
        late = asyncio.create_task(engine.caption(job(png("green"))))
        await until(lambda: engine._scheduler.queued_images == 2)
        old.gate.set()
        await asyncio.gather(first, waiting, late)
        assert (old.batches, new.batches) == ([1], [1])  # the one that waited has joined the first

    run(old, scenario)


def test_a_model_leaves_when_its_last_request_is_answered() -> None:
    pipeline, other = GatedPipeline(), GatedPipeline()
    other.gate.clear()

    async def scenario(engine: Engine) -> None:
        engine.put_model("other", LoadedModel(other))
        asked = asyncio.create_task(engine.caption(job(png(), model="other")))
        await until(other.arrived.is_set)
        leaving = asyncio.create_task(engine.drop_model("other"))
        await asyncio.sleep(0)
        with pytest.raises(UnknownNameError, match="no model 'other' here; there are: fake"):
            await engine.caption(job(png(), model="other"))
        assert not leaving.done()
        other.gate.set()
        assert (await asked).results[0].captions
        await leaving
        engine.put_model("other", LoadedModel(other))  # its lane is free again
        assert (await engine.caption(job(png(), model="other"))).results[0].captions

    try:
        run(pipeline, scenario)
    finally:
        other.gate.set()
