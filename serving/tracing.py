"""Traces of requests: whether they are asked for, and the door to OpenTelemetry, which is loaded only then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from models.errors import MissingDependencyError, RequestError
from serving.args import AppArgs, TracingArgs
from serving.messages import CaptionJob, ScoreJob
from serving.stage_times import JobTimes
from serving.validation import explain

if TYPE_CHECKING:
    from serving.spans import Spans

J = TypeVar("J", bound=CaptionJob | ScoreJob)

_EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_ENDPOINT_VARIABLES = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "", "OTEL_EXPORTER_OTLP_ENDPOINT": "/v1/traces"}
"""Of the standard, the first that is set counts, with what is added to it."""

current_trace: ContextVar[str | None] = ContextVar("current_trace", default=None)
"""The ``traceparent`` of the span of the request that is answered; None: it has none, or it is not recorded."""


def with_tracing(args: AppArgs, environment: Mapping[str, str]) -> AppArgs:
    """``args`` with the receiver of traces that the environment names, where they name none themselves.

    Raises:
        MissingDependencyError: traces are asked for and the extra ``otel`` is not installed.
        RequestError: the environment names what is no address.
    """
    tracing = args.tracing
    if tracing is None and (endpoint := endpoint_of(environment)) is not None:
        tracing = TracingArgs(endpoint=endpoint)
    if tracing is None:
        return args
    if not _has_exporter():
        raise MissingDependencyError(
            "missing_dependency", "traces need OpenTelemetry and its OTLP exporter: pip install 'limner[otel]'"
        )
    return args.model_copy(update={"tracing": tracing})


def start_spans(args: TracingArgs | None, process: str) -> Spans | None:
    """What records the spans of this process; None where no traces are asked for."""
    if args is None:
        return None
    from serving.spans import Spans  # deferred: loads OpenTelemetry, an optional package

    return Spans.exported(args, process)


def with_trace(job: J) -> J:
    """``job`` as one of the request that is answered."""
    trace = current_trace.get()
    return job if trace is None else replace(job, trace=trace)


@contextmanager
def job_times(spans: Spans | None, name: str, job: CaptionJob | ScoreJob) -> Iterator[JobTimes | None]:
    """What the block is to fill in about the job for its trace; None where it has none."""
    if spans is None or job.trace is None:
        yield None
        return
    with spans.job(name, job) as times:
        yield times


def endpoint_of(environment: Mapping[str, str]) -> str | None:
    """The receiver of traces that the environment names.

    Raises:
        RequestError: what is named is no address.
    """
    for variable, path in _ENDPOINT_VARIABLES.items():
        if base := environment.get(variable, "").strip():
            endpoint = base.rstrip("/") + path if path else base
            try:
                return TracingArgs(endpoint=endpoint).endpoint
            except ValidationError as error:
                raise RequestError("invalid_request", f"the variable {variable}: {explain(error)}") from None
    return None


def _has_exporter() -> bool:
    try:
        return find_spec(_EXPORTER) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
