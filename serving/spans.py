"""Spans by OpenTelemetry's SDK, with a provider of limner's own: the global one is Ray's to set."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from models import __version__
from models.errors import LimnerError
from serving.args import TracingArgs
from serving.messages import CaptionJob, CaptionReply, ScoreJob, ScoreReply
from serving.own_thread import in_own_thread
from serving.stage_times import JobTimes, Stage, stages

_W3C = TraceContextTextMapPropagator()
_FLUSH_S = 2.0
_NOBODY_WAITS = "client_gone"


class RequestSpan:
    """The span of one request, as far as it is known."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def traceparent(self) -> str | None:
        """For the parts of the server that work on the request; None: nothing of it is recorded."""
        return _carried(self._span) if self._span.is_recording() else None

    def end(
        self,
        *,
        method: str,
        route: str,
        request_id: str,
        status: int | None,
        model: str | None,
        images: int | None,
        error: str | None,
    ) -> None:
        """Say what came of it; ``status`` None: the client left before the answer."""
        self._span.update_name(f"{method} {route}")
        known = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "limner.request_id": request_id,
            "limner.model": model,
            "limner.images": images,
            "error.type": error or (_NOBODY_WAITS if status is None else None),
        }
        self._span.set_attributes({name: value for name, value in known.items() if value is not None})
        if status is None or status >= 500:
            self._span.set_status(StatusCode.ERROR)


class Spans:
    """Records the spans of one process. Never raises for what a receiver does."""

    def __init__(self, processor: SpanProcessor, process: str, sample_share: float | None = None) -> None:
        """``sample_share`` is of the requests that come without a trace; None: as OTEL_TRACES_SAMPLER says, or all."""
        described = Resource.create(
            {"service.name": "limner", "service.version": __version__, "service.instance.id": process}
        ).merge(OTELResourceDetector().detect())  # what the environment says counts
        sampler = ParentBased(TraceIdRatioBased(sample_share)) if sample_share is not None else None
        self._provider = TracerProvider(sampler, described, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("limner", __version__)

    @classmethod
    def exported(cls, args: TracingArgs, process: str) -> Self:
        """Spans that a thread beside the work sends; where its queue is full, they are dropped."""
        return cls(BatchSpanProcessor(OTLPSpanExporter(args.url)), process, args.sample_share)

    @contextmanager
    def request(self, carrier: dict[str, str]) -> Iterator[RequestSpan]:
        """The span of a request, which goes on with the trace in its headers, if there is one."""
        span = self._tracer.start_span("request", _W3C.extract(carrier, Context()), SpanKind.SERVER)
        try:
            yield RequestSpan(span)
        finally:
            span.end()

    @contextmanager
    def job(self, name: str, job: CaptionJob | ScoreJob) -> Iterator[JobTimes]:
        """The span of a job of a traced request, with a span for each of its stages."""
        parent = _W3C.extract({"traceparent": job.trace or ""}, Context())
        span = self._tracer.start_span(f"captioner.{name}", parent)
        times = JobTimes()
        try:
            yield times
        except BaseException as error:
            span.set_status(StatusCode.ERROR)
            span.set_attribute("error.type", error.code if isinstance(error, LimnerError) else _kind(error))
            raise
        finally:
            span.set_attributes({"limner.request_id": job.request_id, "limner.model": job.model})
            span.set_attributes(_results(len(job.images), times.reply))
            for stage in stages(times.images):
                self._record(stage, span)
            span.end()

    async def flushed(self) -> None:
        """Send what waits, for at most a moment: the SDK waits for a receiver as long as its export takes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await in_own_thread(self._provider.force_flush)

    def _record(self, stage: Stage, parent: Span) -> None:
        span = self._tracer.start_span(
            stage.name,
            trace.set_span_in_context(parent, Context()),
            attributes={"limner.images": stage.images},
            start_time=round(stage.start_s * 1e9),
        )
        span.end(round(stage.end_s * 1e9))


def _carried(span: Span) -> str:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier["traceparent"]


def _kind(error: BaseException) -> str:
    return _NOBODY_WAITS if isinstance(error, asyncio.CancelledError) else "internal_error"


def _results(images: int, reply: CaptionReply | ScoreReply | None) -> dict[str, int]:
    known = {"limner.images": images}
    if reply is not None:
        known["limner.images_failed"] = sum(each.error is not None for each in reply.results)
    if isinstance(reply, CaptionReply):
        captions = [caption for each in reply.results for caption in each.captions]
        known["limner.captions"] = len(captions)
        known["limner.tokens"] = sum(caption.tokens for caption in captions)
    return known
