"""Spans of requests that an application in this process answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from models.decoding import parse_decode
from serving.args import AppArgs, Limits, TracingArgs
from serving.messages import CaptionJob
from serving.model_pool import LoadedModel
from serving.spans import Spans
from tests.serving.conftest import free_port
from tests.serving.support import GatedPipeline, b64, local_models, pictures, png

ARGS = AppArgs(models=("fake",), scorer=None)
PNG = {"content-type": "image/png"}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test, run to its end."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Recorded:
    """Spans and what they recorded."""

    def __init__(self, sample_share: float | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.spans = Spans(SimpleSpanProcessor(self._exporter), "test", sample_share)

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        """The only one of this name."""
        [span] = [span for span in self.all if span.name == name]
        return span


@asynccontextmanager
async def traced_app(
    recorded: Recorded, args: AppArgs = ARGS
) -> AsyncIterator[tuple[httpx.AsyncClient, GatedPipeline]]:
    pipeline = GatedPipeline()
    async with local_models({"fake": LoadedModel(pipeline)}, args, spans=recorded.spans) as (client, _):
        yield client, pipeline


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def is_within(inner: ReadableSpan, outer: ReadableSpan) -> bool:
    assert inner.start_time and inner.end_time and outer.start_time and outer.end_time
    return outer.start_time <= inner.start_time <= inner.end_time <= outer.end_time


def parent_of(span: ReadableSpan, others: Sequence[ReadableSpan]) -> ReadableSpan | None:
    ids = {each.context.span_id: each for each in others if each.context}
    return ids.get(span.parent.span_id) if span.parent else None


@in_a_loop
async def test_a_request_is_one_trace_down_to_its_stages() -> None:
    recorded = Recorded()
    async with traced_app(recorded) as (client, _):
        images = [{"base64": b64(data)} for data in pictures(3)]
        answer = await client.post("/v1/captions", json={"images": images}, headers={"x-request-id": "r-1"})
    assert answer.status_code == 200
    spans = recorded.all
    assert len({span.context.trace_id for span in spans if span.context}) == 1
    request, job = recorded.named("POST /v1/captions"), recorded.named("captioner.caption")
    assert request.parent is None
    assert parent_of(job, spans) is request
    assert is_within(job, request)
    stages = [span for span in spans if span not in (request, job)]
    assert {span.name for span in stages} == {"open", "queue", "encode", "decode"}
    for stage in stages:
        assert parent_of(stage, spans) is job
        assert is_within(stage, job), stage.name
    captions = [caption for result in answer.json()["results"] for caption in result["captions"]]
    assert attributes(request) == {
        "http.request.method": "POST",
        "http.route": "/v1/captions",
        "http.response.status_code": 200,
        "limner.request_id": "r-1",
        "limner.model": "fake",
        "limner.images": 3,
    }
    assert attributes(job) == {
        "limner.request_id": "r-1",
        "limner.model": "fake",
        "limner.images": 3,
        "limner.images_failed": 0,
        "limner.captions": 3,
        "limner.tokens": sum(caption["tokens"] for caption in captions),
    }
    assert sum(attributes(span)["limner.images"] for span in stages if span.name == "decode") == 3  # type: ignore[misc]
    assert not {request.status.status_code, job.status.status_code} & {StatusCode.ERROR}


@in_a_loop
async def test_stages_take_what_the_answer_says() -> None:
    recorded = Recorded()
    async with traced_app(recorded) as (client, _):
        answer = await client.post("/v1/captions", content=png(), headers=PNG)
    for name in ("queue", "encode", "decode"):
        span = recorded.named(name)
        assert span.start_time and span.end_time
        assert (span.end_time - span.start_time) / 1e6 == pytest.approx(answer.json()["timing_ms"][name], abs=0.01)


@in_a_loop
async def test_the_trace_of_the_client_goes_on() -> None:
    recorded = Recorded(sample_share=0)
    async with traced_app(recorded) as (client, _):
        await client.post("/v1/captions", content=png(), headers={**PNG, "traceparent": SAMPLED})
        request = recorded.named("POST /v1/captions")
        assert request.context and request.parent
        assert (request.context.trace_id, request.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
        assert recorded.named("captioner.caption").context.trace_id == int(TRACE, 16)  # type: ignore[union-attr]


@pytest.mark.parametrize(("share", "given"), [(0.0, None), (1.0, UNSAMPLED), (0.0, "no traceparent")])
@in_a_loop
async def test_what_is_not_sampled_leaves_nothing_anywhere(share: float, given: str | None) -> None:
    recorded = Recorded(share)
    headers = {**PNG, "traceparent": given} if given else PNG
    async with traced_app(recorded) as (client, _):
        assert (await client.post("/v1/captions", content=png(), headers=headers)).status_code == 200
    assert list(recorded.all) == []


@in_a_loop
async def test_a_traceparent_that_is_none_begins_a_new_trace() -> None:
    recorded = Recorded()
    async with traced_app(recorded) as (client, _):
        for given in ("", "00-zz-zz-01", "a" * 5000, f"00-{'0' * 32}-{PARENT}-01"):
            answer = await client.get("/v1/models", headers={"traceparent": given})
            assert answer.status_code == 200
    assert [span.parent for span in recorded.all] == [None] * 4


@in_a_loop
async def test_probes_are_not_traced() -> None:
    recorded = Recorded()
    async with traced_app(recorded) as (client, _):
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await client.get(path)).status_code == 200
    assert list(recorded.all) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "status"),
    [
        ("POST", "/v1/captions", b"no picture", "not_an_image", 400),
        ("POST", "/v1/captions?model=nope", png(), "unknown_model", 404),
        ("POST", "/v1/captions?num_captions=0", png(), "invalid_request", 422),
        ("POST", "/v1/chat/completions", b"{", "malformed_json", 400),
        ("GET", "/no/such/route?secret=1", b"", "not_found", 404),
        ("BREW", "/v1/captions", b"", "method_not_allowed", 405),
    ],
)
@in_a_loop
async def test_a_refusal_says_its_code_and_is_no_failure_of_the_server(
    method: str, path: str, body: bytes, code: str, status: int
) -> None:
    recorded = Recorded()
    async with traced_app(recorded) as (client, _):
        headers = PNG if path.startswith("/v1/captions") else {"content-type": "application/json"}
        assert (await client.request(method, path, content=body, headers=headers)).status_code == status
    [request] = [span for span in recorded.all if span.parent is None]
    assert (attributes(request)["error.type"], attributes(request)["http.response.status_code"]) == (code, status)
    assert request.status.status_code is not StatusCode.ERROR
    assert "secret" not in request.name and "BREW" not in request.name


@in_a_loop
async def test_a_deadline_shows_where_the_time_went() -> None:
    recorded = Recorded()
    args = ARGS.model_copy(update={"limits": Limits(deadline_s=0.3)})
    async with traced_app(recorded, args) as (client, pipeline):
        pipeline.gate.clear()
        try:
            first = asyncio.create_task(client.post("/v1/captions", content=png(), headers=PNG))
            assert await asyncio.to_thread(pipeline.arrived.wait, 10)
            late = await client.post("/v1/captions?num_captions=2&model=fake", content=png("blue"), headers=PNG)
            await first
        finally:
            pipeline.gate.set()
    assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
    jobs = [span for span in recorded.all if span.name == "captioner.caption"]
    assert [attributes(job)["error.type"] for job in jobs] == ["deadline_exceeded"] * 2
    assert {job.status.status_code for job in jobs} == {StatusCode.ERROR}
    queue = recorded.named("queue")  # of the one whose turn never came
    assert queue.start_time and queue.end_time and queue.end_time - queue.start_time > 0.1e9
    assert parent_of(queue, recorded.all) in jobs


def test_a_client_that_leaves_is_told_apart() -> None:
    recorded = Recorded()
    with recorded.spans.request({}) as request:
        job = CaptionJob("r-1", "fake", (png(),), parse_decode(None), trace=request.traceparent)
        with pytest.raises(asyncio.CancelledError), recorded.spans.job("caption", job):
            raise asyncio.CancelledError
    assert attributes(recorded.named("captioner.caption"))["error.type"] == "client_gone"


@in_a_loop
async def test_nothing_of_pictures_captions_or_keys_is_recorded() -> None:
    recorded = Recorded()
    async with traced_app(recorded) as (client, _):
        answer = await client.post(
            "/v1/captions?model=fake", content=png(), headers={**PNG, "x-api-key": "secret-key", "cookie": "secret"}
        )
    [caption] = answer.json()["results"][0]["captions"]
    said = "".join(span.to_json() for span in recorded.all)
    assert caption["text"] not in said
    assert "secret" not in said


@in_a_loop
async def test_a_receiver_that_is_down_harms_no_request_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
    spans = Spans.exported(TracingArgs(endpoint=f"http://127.0.0.1:{free_port()}"), "test")
    try:
        async with local_models({"fake": LoadedModel(GatedPipeline())}, ARGS, spans=spans) as (client, _):
            for _ in range(20):
                assert (await client.post("/v1/captions", content=png(), headers=PNG)).status_code == 200
            began = time.monotonic()
            await spans.flushed()
            assert time.monotonic() - began < 10
    finally:
        await asyncio.to_thread(spans._provider.shutdown)


def test_the_environment_may_name_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded()
    with recorded.spans.request({}):
        pass
    monkeypatch.setenv("OTEL_SERVICE_NAME", "captions-eu")
    named = Recorded()
    with named.spans.request({}):
        pass
    services = [each.all[0].resource.attributes["service.name"] for each in (recorded, named)]
    assert services == ["limner", "captions-eu"]
