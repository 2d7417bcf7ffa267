"""Clients that leave while Ray carries their body over: they have left, which is no failure of the server."""

from ray.exceptions import RayError
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class RayReceive:
    """When a client hangs up, Ray's proxy cancels the call that an ingress reads its body with; the cancellation, or
    the end of the proxy itself, then comes out of ``receive`` as an error. Here it is the disconnect that it stands
    for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def received() -> Message:
            try:
                return await receive()
            except RayError:
                return {"type": "http.disconnect"}

        await self._app(scope, received if scope["type"] == "http" else receive, send)
