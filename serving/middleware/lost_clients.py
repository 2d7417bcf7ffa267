"""Clients that leave while their body is carried over: they have left, which is no failure of the server."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class LostClients:
    """Turns ``errors`` of ``receive`` into the disconnect that they stand for. When a client hangs up, Ray's proxy
    cancels the call that an ingress reads its body with, and what comes out of ``receive`` is that cancellation."""

    def __init__(self, app: ASGIApp, *, errors: type[Exception]) -> None:
        self._app = app
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def received() -> Message:
            try:
                return await receive()
            except self._errors:
                return {"type": "http.disconnect"}

        await self._app(scope, received if scope["type"] == "http" else receive, send)
