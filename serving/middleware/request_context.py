"""Around every request: its id, its measurements, its line in the log, and an answer when all else failed."""

import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving import metrics
from serving.errors import problem_response, public_error
from serving.logs import access_fields, access_logger
from serving.openai_errors import in_format_of_route
from serving.reports import Reporter
from serving.request_ids import HEADER, usable_id

logger = logging.getLogger(__name__)

_CLIENT_GONE = "499"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})


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
        route = _route(scope)
        self._reporter.count(metrics.REQUESTS, route, status)
        self._reporter.observe(metrics.REQUEST_DURATION, seconds, route)
        if route in _PROBES and status == "200":
            return  # they come every few seconds
        state: dict[str, Any] = scope["state"]
        fields = {
            "request_id": state["request_id"],
            "method": scope["method"] if scope["method"] in _METHODS else "other",
            "route": route,
            "status": int(status),
            "ms": round(seconds * 1000, 1),
            **{name: state.get(name) for name in ("images", "model", "client", "error")},
            # Of those who have no name here; whoever tries out keys is known by nothing else.
            "address": (scope.get("client") or [None])[0] if state.get("error") == "unauthorized" else None,
        }
        access_logger.info("request", extra=access_fields(fields))


def _route(scope: Scope) -> str:
    """The pattern of the route that answered, or would have if the request had come so far: never a path that a client
    made up."""
    if (route := scope.get("route")) is not None:
        return str(route.path)
    meant = (route for route in _each(scope["app"].routes) if route.matches(scope)[0] is not Match.NONE)
    return str(getattr(next(meant, None), "path", "unmatched"))


def _each(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """The routes themselves; FastAPI keeps those of a router that was included together."""
    for route in routes:
        router = getattr(route, "original_router", None)
        yield from (route,) if router is None else _each(router.routes)
