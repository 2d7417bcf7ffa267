"""Who asks: requests without a known API key end here, before their body is read."""

import re

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.api_keys import ApiKeys
from serving.problems import refuse
from serving.route_path import route_path

# What is the same for everybody and starts no work. All else is closed, whether or not there is such a route.
_OPEN = frozenset({"/", "/docs", "/docs/oauth2-redirect", "/openapi.json", "/healthz", "/readyz", "/favicon.ico"})
ADMIN_BELOW = "/v1/admin/"
"""These routes have keys of their own."""
_OPEN_BELOW = ("/page/", "/static-offline-docs/", ADMIN_BELOW)
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)


def needs_key(path: str) -> bool:
    """Whether a path, without the root path, is closed to clients without a key."""
    return path not in _OPEN and not path.startswith(_OPEN_BELOW)


class Authentication:
    """Puts ``client``, the name of the key, into the state of a request; without one the answer is ``unauthorized``."""

    def __init__(self, app: ASGIApp, *, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and needs_key(route_path(scope)):
            given = given_key(Headers(scope=scope))
            name = self._keys.name_of(given) if given is not None else None
            if name is None:
                why = "this key is not known" if given is not None else "a key is needed"
                detail = f"{why}; send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
                await refuse(Request(scope), "unauthorized", detail)(scope, receive, send)
                return
            scope["state"]["client"] = name
        await self._app(scope, receive, send)


def given_key(headers: Headers) -> str | None:
    """The key of a request, or what stands in its place."""
    if (key := headers.get("x-api-key")) is not None:
        return key.strip()
    if (authorization := headers.get("authorization")) is None:
        return None
    match = _BEARER.fullmatch(authorization.strip())
    return match[1] if match is not None else ""
