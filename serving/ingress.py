"""The HTTP deployment: the FastAPI application with Ray handles behind it. Loads no torch."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle

from models.errors import LimnerError, OverloadedError
from serving import metrics
from serving.api import build_api
from serving.api_keys import ApiKeys, read_api_keys
from serving.args import AppArgs
from serving.experiments.checks import check_arms
from serving.experiments.outcomes import OutcomeSender
from serving.fetching.url_images import UrlImages
from serving.full_queues import FullQueues
from serving.ledger_deployment import RayLedger
from serving.listener import listening
from serving.logs import start_logging
from serving.messages import CaptionJob, CaptionReply, ScoreJob, ScoreReply
from serving.middleware.lost_clients import LostClients
from serving.middleware.under_way import Count, UnderWay
from serving.monitor import sender
from serving.replicas import call_replica
from serving.reports import Reporter
from serving.served_models import ServedModels
from serving.services import Services
from serving.tracing import start_spans, with_trace

_PROBE_TIMEOUT_S = 1.0
_GRACE_S = 5.0  # beyond the replica's own deadline, which should answer first


class RayBackend:
    """The captioner and the monitor behind their Serve handles."""

    def __init__(
        self,
        captioner: DeploymentHandle[Any],
        monitor: DeploymentHandle[Any],
        models: Collection[str],
        deadline_s: float,
    ) -> None:
        self._captioner = captioner
        self._monitor = monitor
        self._models = models
        self._timeout_s = deadline_s + _GRACE_S
        self._was_ready = False
        self._full = FullQueues()

    async def caption(self, job: CaptionJob) -> CaptionReply:
        """Captions of the images of one request."""
        reply: CaptionReply = await self._ask("caption", job)
        return reply

    async def score(self, job: ScoreJob) -> ScoreReply:
        """CLIPScores of given captions."""
        reply: ScoreReply = await self._ask("score", job)
        return reply

    def refusal(self) -> OverloadedError | None:
        """That of queues which are full for every model."""
        return self._full.refusal(self._models)

    async def ready(self) -> bool:
        """Whether a captioner replica answers; it exists only after its warm-up."""
        with suppress(OverloadedError):
            await call_replica(self._captioner, "ready", timeout_s=_PROBE_TIMEOUT_S)
            self._was_ready = True
            return True
        return False

    async def metrics(self) -> bytes:
        """The Prometheus text of the monitor."""
        text: bytes = await call_replica(self._monitor, "render", timeout_s=_PROBE_TIMEOUT_S)
        return text

    async def _ask(self, method: str, job: CaptionJob | ScoreJob) -> Any:
        images = sum(isinstance(data, bytes) for data in job.images)
        job = with_trace(job)
        self._full.check(job.model, images)
        if not self._was_ready and not await self.ready():  # rather than let requests pile up behind a loading model
            raise OverloadedError("unavailable", "the models are not ready yet; /readyz tells when they are")
        try:
            reply = await call_replica(self._captioner, method, job, timeout_s=self._timeout_s)
        except OverloadedError:
            self._was_ready = False  # it may be gone: the next one asks first
            raise
        if isinstance(reply, OverloadedError):
            self._full.note(job.model, images, reply)
        if isinstance(reply, LimnerError):
            raise reply
        return reply


@serve.deployment(ray_actor_options={"num_cpus": 0}, graceful_shutdown_wait_loop_s=0.2)
@serve.ingress()
class Ingress:
    """Builds its application on the replica, so that nothing of it is ever pickled."""

    def __init__(
        self,
        args: AppArgs,
        captioner: DeploymentHandle[Any],
        monitor: DeploymentHandle[Any],
        ledger_handle: DeploymentHandle[Any] | None,
    ) -> None:
        self._monitor = monitor
        replica = serve.get_replica_context().replica_tag
        start_logging(args.logs, f"ingress_{replica}")
        reporter = Reporter(replica, metrics.REPORTS_LOST)
        self._under_way = Count(lambda requests: reporter.gauge(metrics.REQUESTS_UNDER_WAY, requests))
        ledger = RayLedger(ledger_handle) if ledger_handle is not None else None
        models = ServedModels.from_args(args)
        check_arms(args.experiments, models)
        self._services = Services(
            args=args,
            models=models,
            backend=RayBackend(captioner, monitor, models.cards, args.limits.deadline_s),
            reporter=reporter,
            ledger=ledger,
            outcomes=OutcomeSender(ledger.record, lambda lost: reporter.count(metrics.OUTCOMES_LOST, amount=lost))
            if ledger is not None
            else None,
            url_images=UrlImages.from_limits(args.limits),
            keys=ApiKeys(read_api_keys(args.api_keys)) if args.api_keys is not None else None,
            spans=start_spans(args.tracing, replica),
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        listen = self._services.args.listen

        @asynccontextmanager
        async def background() -> AsyncIterator[None]:
            async with AsyncExitStack() as closing:
                await closing.enter_async_context(self._reporting())
                if listen is not None:
                    await closing.enter_async_context(listening(app, listen.host, listen.port))
                yield

        app = build_api(self._services, return_id=listen is not None, background=background)
        app.add_middleware(UnderWay, count=self._under_way)
        app.add_middleware(LostClients, errors=RayError)
        return app

    async def drain(self, timeout_s: float) -> bool:
        """Wait until every answer is sent; false when some are not after ``timeout_s``. Refuses nothing: that is for
        the captioner to do, which then answers at once."""
        sent = await self._under_way.none(timeout_s)
        if self._services.outcomes is not None:
            await self._services.outcomes.close()
        if self._services.spans is not None:
            await self._services.spans.flushed()
        return sent

    @asynccontextmanager
    async def _reporting(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as closing:
            if (spans := self._services.spans) is not None:
                closing.push_async_callback(spans.flushed)
            closing.callback(asyncio.create_task(self._services.reporter.run(sender(self._monitor))).cancel)
            if (outcomes := self._services.outcomes) is not None:
                closing.push_async_callback(outcomes.close)
                closing.callback(asyncio.create_task(outcomes.run()).cancel)
            yield
