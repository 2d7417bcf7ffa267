"""Whether traces are asked for, and what that needs."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from models.errors import MissingDependencyError, RequestError
from serving import cli, tracing
from serving.app import build_app
from serving.args import AppArgs, TracingArgs
from serving.messages import CaptionJob
from serving.tracing import endpoint_of, job_times, start_spans, with_trace, with_tracing
from tests.import_graph import ROOT, imports

RECEIVER = "http://127.0.0.1:4318"


def test_nobody_is_told_unless_asked() -> None:
    args = AppArgs()
    assert with_tracing(args, {}) is args
    assert with_tracing(args, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}) is args
    assert start_spans(None, "a") is None


def test_the_standards_variables_name_the_receiver() -> None:
    base = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"{RECEIVER}/"}
    exact = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{RECEIVER}/here"}
    assert with_tracing(AppArgs(), base).tracing == TracingArgs(endpoint=f"{RECEIVER}/v1/traces")
    assert endpoint_of({"OTEL_EXPORTER_OTLP_ENDPOINT": f"{RECEIVER}/otlp"}) == f"{RECEIVER}/otlp/v1/traces"
    assert endpoint_of({**base, **exact}) == f"{RECEIVER}/here"
    own = AppArgs(tracing=TracingArgs(endpoint="http://own:1"))
    assert with_tracing(own, base) == own
    with pytest.raises(RequestError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT: .*'collector:4318.* is no address"):
        endpoint_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"})


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (RECEIVER, f"{RECEIVER}/v1/traces"),
        (f"{RECEIVER}/", f"{RECEIVER}/v1/traces"),
        (f"{RECEIVER}/v1/traces", f"{RECEIVER}/v1/traces"),
        ("https://a.example/otlp/", "https://a.example/otlp/"),
    ],
)
def test_a_path_is_added_where_there_is_none(endpoint: str, url: str) -> None:
    assert TracingArgs(endpoint=endpoint).url == url


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:4318", "grpc://a:4317", "http://", "http://a b", "http://a/?b"])
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ValidationError, match="is no address; write http://HOST:PORT"):
        TracingArgs(endpoint=endpoint)


def test_a_missing_extra_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    args = AppArgs(models=("fake",), tracing=TracingArgs(endpoint=RECEIVER))
    assert with_tracing(args, {}) is not None
    for absent in ("opentelemetry.exporter.no_such.exporter", "no_such_package.exporter"):
        monkeypatch.setattr(tracing, "_EXPORTER", absent)
        with pytest.raises(MissingDependencyError, match=r"pip install 'limner\[otel\]'"):
            build_app(args)
        with pytest.raises(MissingDependencyError, match=r"pip install 'limner\[otel\]'"):
            cli.serve(model=["fake"], no_scorer=True, trace_endpoint=RECEIVER)


def test_the_command_line_says_what_is_wrong_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with pytest.raises(RequestError, match="--trace-endpoint: endpoint: 'nowhere' is no address"):
        cli._tracing("nowhere", None)
    with pytest.raises(RequestError, match="--trace-share is a share of traces: give --trace-endpoint as well"):
        cli._tracing(None, 0.5)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", RECEIVER)
    assert cli._tracing(None, 0.5) == TracingArgs(endpoint=f"{RECEIVER}/v1/traces", sample_share=0.5)


def test_a_job_of_no_trace_stays_what_it_is() -> None:
    job = CaptionJob.__new__(CaptionJob)
    assert with_trace(job) is job
    with job_times(None, "caption", job) as times:
        assert times is None


def test_opentelemetry_is_loaded_in_one_place_and_only_where_it_is_asked_for() -> None:
    sources = {item.source for item in imports() if item.target.split(".")[0] == "opentelemetry"}
    assert sources == {"serving.spans"}
    modules = ["serving.tracing", "serving.api", "serving.middleware.traced", "serving.stage_times"]
    script = f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
    script += (
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"  # FastAPI itself loads what is common to all of OpenTelemetry, where it is there
