"""A span around every request, which goes on with the trace of its client."""

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.route_path import METHODS, PROBES, route_path, route_pattern
from serving.tracing import current_trace

if TYPE_CHECKING:
    from serving.spans import Spans

_CARRIED = ("traceparent", "tracestate")


class Traced:
    """Within ``RequestContext``, whose state it tells of. Probes have no span."""

    def __init__(self, app: ASGIApp, *, spans: "Spans") -> None:
        self._app = app
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or route_path(scope) in PROBES:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        status: int | None = None

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._spans.request({name: headers[name] for name in _CARRIED if name in headers}) as span:
            restore = current_trace.set(span.traceparent)
            unexpected = None
            try:
                await self._app(scope, receive, watched)
            except ClientDisconnect:
                raise
            except Exception:
                status, unexpected = status or 500, "internal_error"
                raise
            finally:
                current_trace.reset(restore)
                state = scope["state"]
                span.end(
                    method=scope["method"] if scope["method"] in METHODS else "_OTHER",
                    route=route_pattern(scope),
                    request_id=state["request_id"],
                    status=status,
                    model=state.get("model"),
                    images=state.get("images"),
                    error=state.get("error") or unexpected,
                )
