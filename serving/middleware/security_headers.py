"""Headers that tell browsers to trust an answer as little as it needs."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.route_path import route_path

_ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
# Swagger UI, which FastAPI starts by a script within the page.
_DOCS = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
)


class SecurityHeaders:
    """Adds to every answer what its route has not set itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = route_path(scope)
        added = {**_ALWAYS, "content-security-policy": _DOCS if path == "/docs" else _NOTHING}
        if path.startswith("/v1/"):
            added["cache-control"] = "no-store"  # captions are about somebody's picture

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in added.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, guarded)
