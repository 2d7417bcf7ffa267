"""A bound on the decoded pixels that wait in memory."""

import asyncio
from collections import Counter, deque


class PixelBudget:
    """Room for decoded images; one that is larger than the whole budget enters alone. Lanes that hold less go first,
    within a lane it is first come, first served.

    For the coroutines of one event loop.
    """

    def __init__(self, max_px: int) -> None:
        self._max_px = max_px
        self._held_px: Counter[str] = Counter()
        self._waiters: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    async def acquire(self, px: int, lane: str = "") -> None:
        """Return when ``px`` fit beside what is held; to be given back with ``release(px, lane)``."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (px, turn)
        self._waiters.setdefault(lane, deque()).append(waiter)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came in the same moment
                self.release(px, lane)
            elif waiter in self._waiters.get(lane, ()):
                self._waiters[lane].remove(waiter)
                self._admit()
            raise

    def release(self, px: int, lane: str = "") -> None:
        """Give room back and let the next in."""
        self._held_px[lane] -= self._cost(px)
        self._admit()

    def _cost(self, px: int) -> int:
        return min(px, self._max_px)

    def _admit(self) -> None:
        """Let in who fits, in order; behind one that does not fit nobody is let in, or large ones would never be."""
        while waiting := [lane for lane, waiters in self._waiters.items() if waiters]:
            lane = min(waiting, key=self._held_px.__getitem__)
            px, turn = self._waiters[lane][0]
            if not turn.cancelled():  # a cancelled one gives nothing back, so it takes nothing
                if self._held_px.total() + self._cost(px) > self._max_px:
                    return
                self._held_px[lane] += self._cost(px)
                turn.set_result(None)
            self._waiters[lane].popleft()
