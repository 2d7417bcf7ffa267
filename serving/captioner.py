"""The captioner deployment: loads the models, then hands every job to the engine."""

import asyncio
import io
import logging
import os
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from PIL import Image
from ray import serve
from ray.serve.handle import DeploymentHandle

from models.cpus import usable_cores
from models.decoding import parse_decode
from models.errors import LimnerError
from serving import metrics
from serving.args import AppArgs
from serving.autoscaling import IMAGES_IN_HAND, InHand
from serving.caption_watch import CaptionWatch
from serving.logs import start_logging
from serving.messages import CaptionJob, CaptionReply, ScoreJob, ScoreReply, images_to_do
from serving.model_changes import ModelChanges
from serving.monitor import sender
from serving.own_thread import in_own_thread
from serving.registry_deployment import RayRegistry
from serving.reports import Reporter
from serving.scorer import scores_sender
from serving.tracing import job_times, start_spans

if TYPE_CHECKING:
    from serving.model_pool import LoadedModel

logger = logging.getLogger(__name__)


@serve.deployment(max_constructor_retry_count=1, health_check_period_s=5, graceful_shutdown_wait_loop_s=0.2)
class Captioner:
    """Ready when constructed: by then every model has captioned one real picture.

    Errors are returned, not raised: Ray would wrap them.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self,
        args: AppArgs,
        monitor: DeploymentHandle[Any],
        scorer: DeploymentHandle[Any] | None,
        registry: DeploymentHandle[Any] | None,
    ) -> None:
        from serving.engine import Engine  # deferred: loads torch, which only this process needs
        from serving.engine_shelf import EngineShelf

        self._closing = AsyncExitStack()
        self._in_hand = InHand()
        replica = serve.get_replica_context().replica_tag
        start_logging(args.logs, f"captioner_{replica}")
        self._spans = start_spans(args.tracing, replica)
        if self._spans is not None:
            self._closing.push_async_callback(self._spans.flushed)  # first in, so the last to be done
        reporter = Reporter(replica, metrics.REPORTS_LOST)
        models = await in_own_thread(partial(_load, args))
        self._engine = Engine(models, args, reporter)
        self._closing.push_async_callback(asyncio.to_thread, self._engine.close)
        for model in models:
            await self._warm_up(model)
        reporter.forget()  # nobody asked for the warm-up
        reporter.gauge(metrics.QUEUE_LIMIT_IMAGES, args.limits.max_queue_images)
        own = {model: parse_decode(None, loaded.pipeline.card.decoding) for model, loaded in models.items()}
        self._watch = CaptionWatch(args.monitor, own, reporter, scoring=scorer is not None)
        self._run_beside(reporter.run(sender(monitor)))
        if scorer is not None:
            self._run_beside(self._watch.run(scores_sender(scorer)))
        if registry is not None:
            shelf = EngineShelf(self._engine, models, self._watch, args)
            changes = ModelChanges(replica, models, shelf, RayRegistry(registry).sync)
            await changes.first()
            self._run_beside(changes.run())

    async def caption(self, job: CaptionJob) -> CaptionReply | LimnerError:
        """Captions of the images of one request, or why there are none."""
        try:
            with self._in_hand.holding(images_to_do(job)), job_times(self._spans, "caption", job) as times:
                reply = await self._engine.caption(job, times)
                if times is not None:
                    times.reply = reply
            self._watch.see(job, reply)
            return reply
        except LimnerError as error:
            return error

    async def score(self, job: ScoreJob) -> ScoreReply | LimnerError:
        """CLIPScores of given captions, or why there are none."""
        try:
            with self._in_hand.holding(images_to_do(job)), job_times(self._spans, "score", job) as times:
                reply = await self._engine.score(job, times)
                if times is not None:
                    times.reply = reply
            return reply
        except LimnerError as error:
            return error

    async def ready(self) -> frozenset[str]:
        """The ids of the models that it has; an answer at all is what readiness means here."""
        return self._engine.models

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new jobs and wait for the accepted ones; false when some are left."""
        logger.info("told to stop: new requests are refused, accepted ones are answered")
        drained = await asyncio.to_thread(self._engine.drain, timeout_s)
        if self._spans is not None:
            await self._spans.flushed()
        return drained

    def record_autoscaling_stats(self) -> dict[str, int]:
        """What ``serving.autoscaling:ImagesInHand`` reads; Ray asks where the config file lets replicas come and go."""
        return {IMAGES_IN_HAND: self._in_hand.images}

    def check_health(self) -> None:
        """Raise when the model thread is gone; Ray then replaces the replica."""
        if not self._engine.alive:
            raise RuntimeError("the scheduler thread has ended")

    async def __del__(self) -> None:
        await self._closing.aclose()

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        self._closing.callback(asyncio.create_task(work).cancel)

    async def _warm_up(self, model: str) -> None:
        reply = await self._engine.caption(CaptionJob("warm-up", model, (_grey_png(),), parse_decode(None)))
        if failure := reply.results[0].error:
            raise RuntimeError(f"model {model!r} failed on its first picture: {failure.code}: {failure.detail}")


def threads_of(args: AppArgs) -> int:
    """torch threads of one captioner: as asked for, or its share of the cores."""
    return args.threads or max(1, usable_cores() // args.captioners)


def _load(args: AppArgs) -> "dict[str, LoadedModel]":
    from models.device import set_threads  # deferred: torch again
    from serving.model_pool import load_models

    # Ray sets OMP_NUM_THREADS to the replica's num_cpus; the choice is ours.
    set_threads(threads_of(args))
    if args.device == "auto":
        _warn_of_unseen_gpus()
    return load_models(args)


def _warn_of_unseen_gpus() -> None:
    """Say it where Ray set a GPU aside for this replica and it runs on the CPU all the same."""
    from models.device import pick_device  # deferred: torch again

    given = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    if given and pick_device("auto").type == "cpu":
        logger.warning(
            "Ray gave this replica GPU %s (CUDA_VISIBLE_DEVICES=%s), but torch finds no CUDA device: captions are made "
            "on the CPU. Install the driver and a CUDA build of torch, or ask for no GPU (num_gpus: 0); with device: "
            "cuda it would refuse to start",
            ", ".join(given),
            os.environ.get("CUDA_VISIBLE_DEVICES"),
        )


def _grey_png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), "grey").save(buffer, "PNG")
    return buffer.getvalue()
