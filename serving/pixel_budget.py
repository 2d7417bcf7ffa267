"""A bound on the decoded pixels that wait in memory."""

import asyncio
from collections import deque


class PixelBudget:
    """First come, first served room for decoded images; one that is larger than the whole budget enters alone.

    For the coroutines of one event loop.
    """

    def __init__(self, max_px: int) -> None:
        self._max_px = max_px
        self._held_px = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, px: int) -> None:
        """Return when ``px`` fit beside what is held; to be given back with ``release(px)``."""
        if not self._waiters and self._fits(px):
            self._held_px += self._cost(px)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (px, turn)
        self._waiters.append(waiter)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came in the same moment
                self.release(px)
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._admit()
            raise

    def release(self, px: int) -> None:
        """Give room back and let the next in."""
        self._held_px -= self._cost(px)
        self._admit()

    def _cost(self, px: int) -> int:
        return min(px, self._max_px)

    def _fits(self, px: int) -> bool:
        return self._held_px + self._cost(px) <= self._max_px

    def _admit(self) -> None:
        while self._waiters and self._fits(self._waiters[0][0]):
            px, turn = self._waiters.popleft()
            if not turn.cancelled():  # a cancelled one gives nothing back, so it takes nothing
                self._held_px += self._cost(px)
                turn.set_result(None)
