"""The captioner of one replica, without Ray: opens images, queues them, gathers what the batches gave."""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from models.caption_session import Manner
from models.errors import ImageError, LimnerError, OverloadedError, RequestError
from models.feature_cache import FeatureCache, KnownPicture
from models.images import ImageLimits, load_image
from models.pipeline import CaptionPipeline
from serving import metrics
from serving.answers import Answer, timing
from serving.args import AppArgs
from serving.batches import BatchRunner, CaptionKey, Outcome, Payload, ScoreKey
from serving.errors import public_error
from serving.messages import (
    CaptionedImage,
    CaptionJob,
    CaptionReply,
    Failure,
    ScoredImage,
    ScoreJob,
    ScoreReply,
    images_to_do,
)
from serving.model_pool import LoadedModel, ModelPool
from serving.payloads import caption_payload, score_payload
from serving.pixel_budget import PixelBudget
from serving.points import Point
from serving.reports import Reporter
from serving.results import below
from serving.scheduler import Reservation, Scheduler
from serving.stage_times import ImageTimes, JobTimes
from serving.turns import WorkItem

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

_BYTES_OF_A_PIXEL = 3
_LANE_POLL_S = 0.05


@dataclass(frozen=True)
class _Ask:
    """How one image is queued once it is open."""

    data: bytes | Failure
    key: Hashable
    rows: int
    payload: Callable[..., Payload]
    """From the image, its features where they are known, and who is to be told them."""
    encoder: str | None = None
    """Names the encoder whose features of this image may be known; None: they are of no use."""
    needs_image: bool = True
    """Whether known features are not enough."""
    draft_px: int | None = None
    """As ``load_image`` takes it."""


@dataclass(frozen=True)
class _Opened:
    """One image on its way into the queue."""

    payload: Payload
    px: int
    """What it takes of the memory for decoded pixels."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Accepted:
    """What a job holds while it is answered."""

    room: Reservation[Payload, Outcome]
    deadline: float
    """On the clock of ``time.monotonic``."""
    times: JobTimes | None
    """Told what each image took, where that is traced."""


class Engine:
    """Answers jobs, many at a time on one event loop, with one scheduler thread that owns every model."""

    def __init__(self, models: Mapping[str, LoadedModel], args: AppArgs, reporter: Reporter) -> None:
        limits = args.limits
        self._models = ModelPool(models, args.max_mix_bytes)
        self._reporter = reporter
        self._deadline_s = limits.deadline_s
        self._image_limits = ImageLimits(max_bytes=limits.max_image_bytes, max_pixels=limits.max_image_px)
        # Each model has its own: nobody's pictures stand behind those that wait to enter another model's full queue.
        self._decode_threads = args.decode_threads
        self._opening = {model: asyncio.Semaphore(args.decode_threads) for model in models}
        self._openers = ThreadPoolExecutor(args.decode_threads, thread_name_prefix="limner-images")
        self._waiting_px = PixelBudget(limits.max_waiting_px)
        self._drafts = args.draft
        self._keeps_features = args.feature_cache_s > 0
        self._features = FeatureCache(args.feature_cache_s, args.max_feature_bytes)
        self._scheduler: Scheduler[Payload, Outcome] = Scheduler(
            run_turn=BatchRunner(reporter),
            max_queue_images=limits.max_queue_images,
            max_batch_images=args.max_batch_images,
            max_batch_rows=args.max_batch_rows,
            lanes=tuple(models),
            largest_request=limits.max_images,
            target_pass_s=args.target_pass_s,
            on_queue_change=lambda images: reporter.gauge(metrics.QUEUE_IMAGES, images),
        )

    @property
    def models(self) -> frozenset[str]:
        """Ids of the models that it serves now."""
        return frozenset(self._models)

    @property
    def alive(self) -> bool:
        """Whether the model thread runs."""
        return self._scheduler.alive

    async def caption(self, job: CaptionJob, times: JobTimes | None = None) -> CaptionReply:
        """Captions, image by image; ``times`` is told what each took.

        Raises:
            UnknownNameError: ``unknown_model``.
            RequestError: ``unsupported_option`` where scores are asked for and the model has no scorer, or guidance and
                it has no null memory.
            OverloadedError: no room, too late, or shutting down.
        """
        loaded = self._models.loaded(job.model)  # for both passes: it may be replaced or taken out meanwhile
        plain = loaded.pipeline
        job.strategy.check(plain.captioner)
        if job.score or job.rerank or job.min_clip_score is not None:
            _require_scorer(plain)
        async with self._accepted(job, times) as accepted:
            answers = await self._caption_at(job, loaded, job.point, job.images, accepted)
            results = [CaptionedImage(each.outcome.captions, each.notes, each.error, job.point) for each in answers]
            if low := _below(job, results):
                assert job.fallback is not None
                accepted.room.extend(len(low))
                again = await self._caption_at(job, loaded, job.fallback, [job.images[n] for n in low], accepted)
                for number, each in zip(low, again, strict=True):
                    if each.error is None:  # else the first caption is better than none
                        results[number] = CaptionedImage(
                            each.outcome.captions, each.notes, None, job.fallback, fallback=True
                        )
                answers += again
        return CaptionReply(tuple(results), timing(answers))

    async def score(self, job: ScoreJob, times: JobTimes | None = None) -> ScoreReply:
        """CLIPScores, image by image. Takes and raises what ``caption`` does."""
        pipeline = self._models[job.model]
        _require_scorer(pipeline)
        key, draft_px = ScoreKey(job.model), self._draft_px(pipeline)
        asks = [
            _Ask(data, key, len(texts), partial(score_payload, pipeline, texts), draft_px=draft_px)
            for data, texts in zip(job.images, job.captions, strict=True)
        ]
        async with self._accepted(job, times) as accepted:
            answers = await self._answer(job, asks, accepted)
        scored = (ScoredImage(answer.outcome.clip_scores, pipeline.scorer_id, answer.error) for answer in answers)
        return ScoreReply(tuple(scored))

    @asynccontextmanager
    async def _accepted(self, job: CaptionJob | ScoreJob, times: JobTimes | None) -> AsyncIterator[_Accepted]:
        """Room in the queue and the time there is, for all that the job needs, the making of a mix included."""
        deadline = time.monotonic() + self._deadline_s
        with self._scheduler.reserve(images_to_do(job), job.model) as room:
            if isinstance(job, CaptionJob) and job.fallback is not None:
                room.extend(1)  # a place that is held until a second pass is sure not to come: a drain waits for it
            try:
                async with asyncio.timeout(self._deadline_s):
                    yield _Accepted(room, deadline, times)
            except TimeoutError:
                detail = f"no answer within {self._deadline_s:g} s: send fewer images at a time or try again later"
                raise OverloadedError("deadline_exceeded", detail) from None

    async def _caption_at(
        self,
        job: CaptionJob,
        loaded: LoadedModel,
        point: Point,
        images: Sequence[bytes | Failure],
        accepted: _Accepted,
    ) -> list[Answer]:
        manner = Manner(job.strategy, job.num_captions, job.rerank)
        async with self._models.lease(loaded, point.coefficients) as pipeline:
            key = CaptionKey(job.model, pipeline)
            has_scorer = pipeline.scorer_id is not None
            needed = job.rerank or job.min_clip_score is not None
            score = needed or (has_scorer if job.score is None else job.score)
            encoder = pipeline.encoder_key if self._keeps_features else None
            payload = partial(caption_payload, pipeline, manner, score)
            draft_px = self._draft_px(pipeline)
            asks = [_Ask(data, key, manner.rows, payload, encoder, score, draft_px) for data in images]
            return await self._answer(job, asks, accepted)

    def put_model(self, model: str, loaded: LoadedModel) -> None:
        """Serve one model more, or another version of one: what is under way ends with the version it began with."""
        if model not in self._models:
            self._opening[model] = asyncio.Semaphore(self._decode_threads)
            self._scheduler.add_lane(model)
        self._models.put(model, loaded)

    async def drop_model(self, model: str) -> None:
        """Refuse new jobs of a model as ``unknown_model``; returns when the accepted ones are done."""
        self._models.drop(model)
        while not self._scheduler.drop_lane(model):
            await asyncio.sleep(_LANE_POLL_S)
        del self._opening[model]

    def drain(self, timeout_s: float) -> bool:
        """Refuse new jobs and wait for the accepted ones; false when some are left."""
        return self._scheduler.drain(timeout_s)

    def close(self) -> None:
        """Drain and end the threads."""
        self._scheduler.close()
        self._openers.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, job: CaptionJob | ScoreJob, asks: Sequence[_Ask], accepted: _Accepted) -> list[Answer]:
        return await asyncio.gather(*(self._answer_one(job, ask, accepted) for ask in asks))

    async def _answer_one(self, job: CaptionJob | ScoreJob, ask: _Ask, accepted: _Accepted) -> Answer:
        """Never raises for what concerns this image only, so that its neighbours go on."""
        if isinstance(ask.data, Failure):
            return Answer(error=ask.data)
        try:
            return await self._queue(job.model, ask, ask.data, accepted)
        except Exception as error:
            if not isinstance(error, LimnerError):
                logger.exception("request %s: an image failed", job.request_id)
            return Answer(error=Failure(*public_error(error)))

    async def _queue(self, model: str, ask: _Ask, data: bytes, accepted: _Accepted) -> Answer:
        taken_s = time.time()
        try:
            async with self._opening[model]:
                loop = asyncio.get_running_loop()
                opened = await loop.run_in_executor(self._openers, self._open, ask, data)
                await self._waiting_px.acquire(opened.px, model)  # inside: nothing is opened while there is no room
        except ImageError:
            accepted.room.release()
            raise
        item = WorkItem[Payload, Outcome](ask.key, opened.payload, ask.rows, accepted.deadline, model)
        queued_s = time.time()
        try:
            done = await asyncio.wrap_future(accepted.room.submit(item))
        except asyncio.CancelledError:
            item.given_up.set()  # a future that runs cannot be cancelled
            if accepted.times is not None and item.future.cancelled():
                accepted.times.images.append(ImageTimes(taken_s, queued_s, time.time() - queued_s))
            raise
        finally:
            self._waiting_px.release(opened.px, model)
        self._reporter.observe(metrics.STAGE_DURATION, done.wait_s, "queue")
        if accepted.times is not None:
            accepted.times.images.append(ImageTimes(taken_s, queued_s, done.wait_s, done.value.timing))
        return Answer(done.value, done.wait_s, opened.notes)

    def _open(self, ask: _Ask, data: bytes) -> _Opened:
        """For a thread of its own."""
        name = (hashlib.sha256(data).digest(), ask.encoder) if ask.encoder is not None else None
        known = self._features.get(name) if name is not None else None
        if name is not None:
            self._reporter.count(metrics.FEATURES, "known" if known is not None else "computed")
        if known is not None and not ask.needs_image:
            return _Opened(ask.payload(None, known.features, None), 1, known.notes)
        loaded = load_image(data, self._image_limits, draft_px=ask.draft_px)
        notes = tuple(loaded.notes)
        remember = partial(self._remember, name, notes) if name is not None else None
        payload = ask.payload(loaded.image, known.features if known is not None else None, remember)
        prepared = 0 if payload.pixels is None else payload.pixels.nbytes // _BYTES_OF_A_PIXEL
        return _Opened(payload, loaded.image.width * loaded.image.height + prepared, notes)

    def _draft_px(self, pipeline: CaptionPipeline) -> int | None:
        return pipeline.draft_px if self._drafts else None

    def _remember(self, name: Hashable, notes: tuple[str, ...], features: "torch.Tensor") -> None:
        self._features.put(name, KnownPicture(features, notes))


def _below(job: CaptionJob, results: Sequence[CaptionedImage]) -> list[int]:
    """The images whose best caption scores too low, where another point is left to try."""
    if job.fallback is None or job.fallback.coefficients == job.point.coefficients:
        return []
    return below(job.min_clip_score, results)


def _require_scorer(pipeline: CaptionPipeline) -> None:
    if pipeline.scorer_id is None:
        raise RequestError("unsupported_option", "score: this server runs without a scorer")
