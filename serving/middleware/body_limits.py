"""Bounds on the body of a request: its size, announced or counted, and the time it may take to arrive."""

import asyncio
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.errors import RequestError


class BodyLimits:
    """Raises ``body_too_large`` at once for an announced size, or as soon as the chunks exceed it, and ``body_timeout``
    when the last chunk is late. Raised where the route reads, so that it is answered like any other refusal."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        too_large = announced.isascii() and announced.isdigit() and _exceeds(announced, self._max_body_bytes)
        limited = _refuse_reading(self._too_large()) if too_large else self._limit(receive)
        await self._app(scope, limited, send)

    def _limit(self, receive: Receive) -> Receive:
        received_bytes = 0
        complete = False
        deadline = time.monotonic() + self._timeout_s

        async def limited() -> Message:
            nonlocal received_bytes, complete
            if complete:  # only the disconnect is left to wait for
                return await receive()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                detail = f"the body did not arrive within {self._timeout_s:g} s"
                raise RequestError("body_timeout", detail) from None
            received_bytes += len(message.get("body", b""))
            if received_bytes > self._max_body_bytes:
                raise self._too_large()
            complete = not message.get("more_body", False)
            return message

        return limited

    def _too_large(self) -> RequestError:
        return RequestError("body_too_large", f"the body is larger than {self._max_body_bytes} bytes")


def _refuse_reading(error: RequestError) -> Receive:
    async def refuse() -> Message:
        raise error

    return refuse


def _exceeds(announced: str, most: int) -> bool:
    """Compared by the number of digits first: Python refuses to read thousands of them."""
    digits = announced.lstrip("0")
    return len(digits) > len(str(most)) or int(digits or "0") > most
