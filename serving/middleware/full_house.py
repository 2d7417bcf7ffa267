"""Requests that would be refused whatever is in them: they end before their body is read as a request."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from models.errors import OverloadedError
from serving.problems import refuse_for
from serving.route_path import route_path

CAPTIONER_ROUTES = frozenset({"/v1/captions", "/v1/chat/completions", "/v1/compare", "/v1/score"})
"""Those whose every request needs room for an image in the captioner's queue."""

_PATIENCE_S = 0.2


class FullHouse:
    """Answers requests for the captioner by ``refusal()``, where there is one. At four times the load three of four
    requests end here, so what this costs is what is left for those that are served.

    A body that is there within a moment is thrown away first, so that its client may keep the connection.
    """

    def __init__(self, app: ASGIApp, *, refusal: Callable[[], OverloadedError | None]) -> None:
        self._app = app
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and route_path(scope) in CAPTIONER_ROUTES:
            error = self._refusal()
            if error is not None:
                await _throw_away(scope, receive)
                await refuse_for(Request(scope), error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _throw_away(scope: Scope, receive: Receive) -> None:
    if any(name == b"expect" for name, _ in scope["headers"]):  # it waits to be asked for its body
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            while (await receive()).get("more_body", False):
                pass
