"""The outermost layer of a request: its id, its measurements, and an answer when all else failed."""

import logging
import re
import time
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving import metrics
from serving.errors import problem_response, public_error
from serving.openai_errors import in_format_of_route
from serving.reports import Reporter

logger = logging.getLogger(__name__)

_USABLE_ID = re.compile(r"[A-Za-z0-9._:+/=-]{1,128}")
_CLIENT_GONE = "499"


class RequestContext:
    """Puts ``request_id`` and ``started`` (``time.perf_counter``) into the request's state, counts and times every
    request, and answers an unexpected exception as any other error, without a traceback.

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
        request_id = _request_id(scope)
        started = time.perf_counter()
        scope.setdefault("state", {}).update(request_id=request_id, started=started)
        status = _CLIENT_GONE

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
                if self._return_id:
                    MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            pass
        except Exception as error:
            logger.exception("request %s failed", request_id)
            if status != _CLIENT_GONE:  # the answer has begun; it cannot be taken back
                raise
            self._reporter.count(metrics.ERRORS, "internal_error")
            problem = problem_response(*public_error(error), request_id)
            await in_format_of_route(scope, problem)(scope, receive, watched)
        finally:
            route = _route(scope)
            self._reporter.count(metrics.REQUESTS, route, status)
            self._reporter.observe(metrics.REQUEST_DURATION, time.perf_counter() - started, route)


def _route(scope: Scope) -> str:
    """The pattern of the route that answered: never a path that a client made up."""
    if (route := scope.get("route")) is not None:
        return str(route.path)
    # FastAPI adds its own document as a plain route, which leaves no trace in the scope.
    return scope["path"] if scope["path"] == scope["app"].openapi_url else "unmatched"


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _USABLE_ID.fullmatch(given) else str(uuid4())
