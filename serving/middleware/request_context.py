"""Around every request: its id, its measurements, its line in the log, and an answer when all else failed."""

import logging
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving import metrics
from serving.errors import problem_response, public_error
from serving.logs import access_fields, access_logger
from serving.openai_errors import in_format_of_route
from serving.reports import Reporter
from serving.request_ids import HEADER, usable_id
from serving.route_path import METHODS, PROBES, route_pattern

logger = logging.getLogger(__name__)

_CLIENT_GONE = "499"


class RequestContext:
    """Puts ``request_id`` and ``started`` (``time.perf_counter``) into the request's state; counts, times and logs
    every request; answers an unexpected exception as any other error, without a traceback.

    ``return_id``: whether to send the id back; Ray's proxy does so itself.
    """

    def __init__(self, app: ASGIApp, *, reporter: Reporter, return_id: bool) -> None:
        self._app = app
        self._reporter = reporter
        self._return_id = return_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = usable_id(Headers(scope=scope).get(HEADER, ""))
        started = time.perf_counter()
        state = scope.setdefault("state", {})
        state.update(request_id=request_id, started=started)
        status = _CLIENT_GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
                if self._return_id:
                    MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            pass
        except Exception as error:
            logger.exception("request %s failed", request_id, extra=access_fields({"request_id": request_id}))
            if status != _CLIENT_GONE:  # the answer has begun; it cannot be taken back
                raise
            self._reporter.count(metrics.ERRORS, "internal_error")
            state["error"] = "internal_error"
            problem = problem_response(*public_error(error), request_id)
            await in_format_of_route(scope, problem)(scope, receive, watched)
        finally:
            self._account(scope, status, time.perf_counter() - started)

    def _account(self, scope: Scope, status: str, seconds: float) -> None:
        route = route_pattern(scope)
        self._reporter.count(metrics.REQUESTS, route, status)
        self._reporter.observe(metrics.REQUEST_DURATION, seconds, route, status)
        if route in PROBES and status == "200":
            return
        state: dict[str, Any] = scope["state"]
        fields = {
            "request_id": state["request_id"],
            "method": scope["method"] if scope["method"] in METHODS else "other",
            "route": route,
            "status": int(status),
            "ms": round(seconds * 1000, 1),
            **{name: state.get(name) for name in ("images", "model", "client", "error")},
            # Of those who have no name here; whoever tries out keys is known by nothing else.
            "address": (scope.get("client") or [None])[0] if state.get("error") == "unauthorized" else None,
        }
        access_logger.info("request", extra=access_fields(fields))
