"""The application in one process, without Ray, and a model that works when it is told to."""

import base64
import io
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI
from PIL import Image

from models.caption_session import Ask, Company
from models.catalog import FAKE_CARD
from models.errors import OverloadedError
from models.families.fake import FakeCaptioner
from models.pipeline import CaptionPipeline, PipelineResult
from serving.api import build_api
from serving.api_keys import ApiKeys
from serving.args import AppArgs
from serving.engine import Engine
from serving.fetching.url_images import UrlImages
from serving.messages import CaptionJob, CaptionReply, ScoreJob, ScoreReply
from serving.metrics import REPORTS_LOST, Metrics
from serving.model_pool import LoadedModel
from serving.reports import Reporter
from serving.served_models import ServedModels
from serving.services import Services
from serving.spans import Spans
from serving.tracing import job_times, with_trace


def png(colour: str | tuple[int, int, int] = "red", size: tuple[int, int] = (24, 16)) -> bytes:
    """An encoded picture of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def pictures(count: int) -> list[bytes]:
    """Pictures that differ."""
    return [png((index * 37 % 256, index * 91 % 256, index * 13 % 256)) for index in range(count)]


class GatedPipeline(CaptionPipeline):
    """The fake captioner behind a gate: a pass starts when the gate is open, and tells that it has come."""

    def __init__(self) -> None:
        super().__init__(FakeCaptioner(), model_id="fake", card=FAKE_CARD)
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Event()
        self.batches: list[int] = []

    def caption_asks(self, asks: Sequence[Ask], company: Company | None = None) -> PipelineResult:
        self.arrived.set()
        assert self.gate.wait(30)
        self.batches.append(len(asks))
        return super().caption_asks(asks, company)


class LocalBackend:
    """What the routes need, in this process."""

    def __init__(self, engine: Engine, reporter: Reporter, spans: Spans | None = None) -> None:
        self.engine = engine
        self.spans = spans
        self.reporter = reporter
        self.store = Metrics()

    async def caption(self, job: CaptionJob) -> CaptionReply:
        job = with_trace(job)
        with job_times(self.spans, "caption", job) as times:
            reply = await self.engine.caption(job, times)
            if times is not None:
                times.reply = reply
        return reply

    async def score(self, job: ScoreJob) -> ScoreReply:
        return await self.engine.score(job)

    def refusal(self) -> OverloadedError | None:
        return None

    async def ready(self) -> bool:
        return True

    async def metrics(self) -> bytes:
        if (report := self.reporter._take(even_if_empty=False)) is not None:
            self.store.apply(report)
        return self.store.render()


@asynccontextmanager
async def local_app(
    pipeline: CaptionPipeline, args: AppArgs, url_images: UrlImages | None = None, *, keys: ApiKeys | None = None
) -> AsyncIterator[tuple[httpx.AsyncClient, Engine]]:
    """An HTTP client of the application, and its engine."""
    async with local_models({pipeline.model_id: LoadedModel(pipeline)}, args, url_images, keys=keys) as both:
        yield both


@asynccontextmanager
async def local_models(
    models: Mapping[str, LoadedModel],
    args: AppArgs,
    url_images: UrlImages | None = None,
    *,
    keys: ApiKeys | None = None,
    spans: Spans | None = None,
) -> AsyncIterator[tuple[httpx.AsyncClient, Engine]]:
    """The same of several models, or of such as have directions."""
    reporter = Reporter("test", REPORTS_LOST)
    engine = Engine(models, args, reporter)
    services = Services(
        args,
        ServedModels.from_args(args),
        LocalBackend(engine, reporter, spans),
        reporter,
        url_images=url_images,
        keys=keys,
        spans=spans,
    )
    try:
        async with client_of(build_api(services)) as client:
            yield client, engine
    finally:
        engine.close()


def await_metric(client: httpx.Client, sample: str, fits: Callable[[float], bool], within_s: float = 60) -> float:
    """The value of a sample such as ``name{label="value"}`` once it fits; absent samples are 0."""
    give_up = time.monotonic() + within_s
    while True:
        lines = client.get("/metrics").text.splitlines()
        value = next((float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == sample), 0.0)
        if fits(value):
            return value
        assert time.monotonic() < give_up, f"{sample} is {value}"
        time.sleep(0.1)


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
