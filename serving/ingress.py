"""The HTTP deployment: the FastAPI application with Ray handles behind it. Loads no torch."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle

from models.catalog import CaptionerEntry
from models.errors import LimnerError, OverloadedError, UnknownNameError
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
from serving.messages import CaptionJob, CaptionReply, ScoreJob, ScoreReply, images_to_do
from serving.middleware.lost_clients import LostClients
from serving.middleware.under_way import Count, UnderWay
from serving.model_changes import ModelChanges
from serving.monitor import sender
from serving.registry_deployment import RayRegistry
from serving.replicas import call_replica, replica_was_lost
from serving.reports import Reporter
from serving.served_models import CardShelf, ServedModels
from serving.services import Admin, Services
from serving.tracing import start_spans, with_trace

_PROBE_TIMEOUT_S = 1.0
_GRACE_S = 5.0  # beyond the replica's own deadline, which should answer first
_PASSED_ON_S = 5.0  # for how long another replica is looked for that has the model
_AGAIN_AFTER_S = 0.1
_LAST_OUTCOMES_S = 15.0  # for the ledger to take what is left; it may just be moving to another node


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
            await self._models_of_one()
            self._was_ready = True
            return True
        return False

    async def until_models_are_there(self) -> None:
        """Where captioners of another version answer, as in an update, wait for one that has all the models. Where none
        answers at once, this is the first start, or there is nothing to wait for."""
        with suppress(OverloadedError):
            found = await self._models_of_one()
            while not set(self._models) <= found:
                await asyncio.sleep(_AGAIN_AFTER_S)
                with suppress(OverloadedError):  # between the last of the others and the first of these
                    found = await self._models_of_one()
            self._was_ready = True

    async def metrics(self) -> bytes:
        """The Prometheus text of the monitor."""
        text: bytes = await call_replica(self._monitor, "render", timeout_s=_PROBE_TIMEOUT_S)
        return text

    async def _models_of_one(self) -> frozenset[str]:
        models: frozenset[str] = await call_replica(self._captioner, "ready", timeout_s=_PROBE_TIMEOUT_S)
        return models

    async def _ask(self, method: str, job: CaptionJob | ScoreJob) -> Any:
        images = images_to_do(job)
        job = with_trace(job)
        self._full.check(job.model, images)
        if not self._was_ready and not await self.ready():  # rather than let requests pile up behind a loading model
            raise OverloadedError("unavailable", "the models are not ready yet; /readyz tells when they are")
        try:
            reply = await self._answer(method, job)
        except OverloadedError:
            self._was_ready = False  # it may be gone: the next one asks first
            raise
        if isinstance(reply, OverloadedError):
            self._full.note(job.model, images, reply)
        if isinstance(reply, LimnerError):
            raise reply
        return reply

    async def _answer(self, method: str, job: CaptionJob | ScoreJob) -> Any:
        """What a captioner that has the model says. In an update some are of another version: they are passed over."""
        give_up = time.monotonic() + _PASSED_ON_S
        while True:
            reply = await self._answer_of_one(method, job)
            if not (isinstance(reply, UnknownNameError) and reply.code == "unknown_model"):
                return reply
            if time.monotonic() > give_up:
                detail = f"no part of the server has model {job.model!r} now: it is being replaced by another"
                raise OverloadedError("unavailable", detail)
            await asyncio.sleep(_AGAIN_AFTER_S)

    async def _answer_of_one(self, method: str, job: CaptionJob | ScoreJob) -> Any:
        """What a captioner says. One that is lost with the job, as when its node dies, is replaced by another at once
        where there is one; only once, for fear of jobs that kill."""
        try:
            return await call_replica(self._captioner, method, job, timeout_s=self._timeout_s)
        except OverloadedError as error:
            if not replica_was_lost(error) or not await self.ready():
                raise
        return await call_replica(self._captioner, method, job, timeout_s=self._timeout_s)


@serve.deployment(
    ray_actor_options={"num_cpus": 0},
    max_surge_percent=100,  # an update has the next one before this one goes
    graceful_shutdown_wait_loop_s=0.2,
)
@serve.ingress()
class Ingress:
    """Builds its application on the replica, so that nothing of it is ever pickled."""

    def __init__(
        self,
        args: AppArgs,
        captioner: DeploymentHandle[Any],
        monitor: DeploymentHandle[Any],
        ledger_handle: DeploymentHandle[Any] | None,
        registry_handle: DeploymentHandle[Any] | None,
    ) -> None:
        self._monitor = monitor
        replica = serve.get_replica_context().replica_tag
        start_logging(args.logs, f"ingress_{replica}")
        reporter = Reporter(replica, metrics.REPORTS_LOST)
        self._under_way = Count(lambda requests: reporter.gauge(metrics.REQUESTS_UNDER_WAY, requests))
        ledger = RayLedger(ledger_handle) if ledger_handle is not None else None
        models = ServedModels.from_args(args)
        check_arms(args.experiments, models)
        registry = RayRegistry(registry_handle) if registry_handle is not None else None
        self._changes: ModelChanges[CaptionerEntry] | None = None
        if registry is not None:
            shelf = CardShelf(models, args.models_dir)
            self._changes = ModelChanges(replica, models.cards, shelf, registry.sync, captions=False)
        self._backend = RayBackend(captioner, monitor, models.cards, args.limits.deadline_s)
        self._services = Services(
            args=args,
            models=models,
            backend=self._backend,
            reporter=reporter,
            ledger=ledger,
            outcomes=OutcomeSender(ledger.record, lambda lost: reporter.count(metrics.OUTCOMES_LOST, amount=lost))
            if ledger is not None
            else None,
            url_images=UrlImages.from_limits(args.limits),
            keys=ApiKeys(read_api_keys(args.api_keys)) if args.api_keys is not None else None,
            admin=Admin(registry, ApiKeys(read_api_keys(args.admin_keys))) if registry and args.admin_keys else None,
            spans=start_spans(args.tracing, replica),
        )

    def __serve_build_asgi_app__(self) -> FastAPI:
        listen = self._services.args.listen

        @asynccontextmanager
        async def background() -> AsyncIterator[None]:
            async with AsyncExitStack() as closing:
                await closing.enter_async_context(self._reporting())
                await self._backend.until_models_are_there()
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
            if self._changes is not None:
                closing.callback(asyncio.create_task(self._changes.run()).cancel)
            if (outcomes := self._services.outcomes) is not None:
                closing.push_async_callback(outcomes.close, _LAST_OUTCOMES_S)
                closing.callback(asyncio.create_task(outcomes.run()).cancel)
            yield
