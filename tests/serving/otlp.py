"""A receiver of spans on 127.0.0.1, as OpenTelemetry's collector is one."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


@dataclass(frozen=True)
class SpanSeen:
    """One span as it came over the wire."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, str | int]
    failed: bool
    service: dict[str, str]

    def within(self, outer: "SpanSeen") -> bool:
        """Whether all of its time is that of another, too."""
        return outer.start_ns <= self.start_ns <= self.end_ns <= outer.end_ns


class Receiver:
    """Where it listens, and what came."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[SpanSeen] = []
        self.raw = b""

    def take(self, body: bytes) -> None:
        """One export."""
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_seen(span, service) for span in scope.spans]

    def trace(self, trace_id: str) -> list[SpanSeen]:
        """Its spans, by their start."""
        found = [span for span in self.spans if span.trace_id == trace_id]
        return sorted(found, key=lambda span: (span.start_ns, -span.end_ns))


def _seen(span: Span, service: dict[str, str]) -> SpanSeen:
    return SpanSeen(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes={each.key: each.value.string_value or each.value.int_value for each in span.attributes},
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        service=service,
    )


@contextmanager
def receiving() -> Iterator[Receiver]:
    """One that listens while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            right = self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
            if right:
                receiver.take(body)
            self.send_response(200 if right else 404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
