"""The deployment that scores a sample of the captions, in a process of its own, off the request path."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from models.images import ImageLimits
from serving import metrics
from serving.args import AppArgs
from serving.caption_watch import SendScores
from serving.logs import start_logging
from serving.messages import SampledImage
from serving.monitor import sender
from serving.reports import Reporter
from serving.sample_scorer import SampleScorer

if TYPE_CHECKING:
    from models.clip_scorer import ClipScorer

_RESTART_AFTER_S = 60.0


@serve.deployment(
    num_replicas=1,
    ray_actor_options={"num_cpus": 0},
    max_ongoing_requests=100,
    health_check_period_s=5,
    graceful_shutdown_timeout_s=1,
    graceful_shutdown_wait_loop_s=0.1,
)
class Scorer:
    """Constructed at once and without a model, so that neither its loading nor its failure holds up the application."""

    async def __init__(self, args: AppArgs, monitor: DeploymentHandle[Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        self._closing = ExitStack()
        replica = serve.get_replica_context().replica_tag
        start_logging(args.logs, f"scorer_{replica}")
        reporter = Reporter(replica, metrics.REPORTS_LOST)
        limits = ImageLimits(max_bytes=args.limits.max_image_bytes, max_pixels=args.limits.max_image_px)
        self._scorer = SampleScorer(partial(_load, args), limits, reporter, draft=args.draft)
        self._closing.callback(self._scorer.close)
        self._closing.callback(asyncio.create_task(reporter.run(sender(monitor))).cancel)

    async def score(self, images: Sequence[SampledImage]) -> None:
        """Score sampled images and report to the monitor; the first call, which may have none, loads the model."""
        await self._scorer.score(images)

    def check_health(self) -> None:
        """Raise some time after the model could not be loaded; Ray then replaces the replica, which tries again."""
        if (self._scorer.failed_for_s or 0) > _RESTART_AFTER_S:
            raise RuntimeError("the scorer could not be loaded")

    def __del__(self) -> None:
        self._closing.close()


def scores_sender(scorer: DeploymentHandle[Any]) -> SendScores:
    """What a CaptionWatch sends with."""

    async def send(images: Sequence[SampledImage]) -> None:
        await scorer.score.remote(images)

    return send


def _load(args: AppArgs) -> "ClipScorer":
    from models.clip_scorer import load_scorer  # deferred: loads torch, which only this process needs
    from models.device import set_threads

    set_threads(1)
    assert args.scorer is not None
    return load_scorer(args.scorer, models_dir=args.models_dir, device=args.monitor.scorer_device)
