"""How many requests are under way, so that a server that stops can wait for the last answer to be sent."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class Count:
    """Requests under way in this process; ``on_change`` is told how many."""

    def __init__(self, on_change: Callable[[int], None] = lambda _requests: None) -> None:
        self.requests = 0
        self._on_change = on_change

    def add(self, requests: int) -> None:
        """One more, or one less."""
        self.requests += requests
        self._on_change(self.requests)

    async def none(self, timeout_s: float) -> bool:
        """Wait until there are none; false when there are some after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.requests:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True


class UnderWay:
    """Counts every request from its head to the end of its answer."""

    def __init__(self, app: ASGIApp, *, count: Count) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._count.add(1)
        try:
            await self._app(scope, receive, send)
        finally:
            self._count.add(-1)
