"""Values that are costly to make, kept within a bound on their bytes and never dropped while somebody uses them."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from serving.own_thread import in_own_thread

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(eq=False)
class _Entry(Generic[V]):
    value: V
    cost_bytes: int
    leases: int = 0


class LeaseCache(Generic[K, V]):
    """Makes ``build(key)`` on another thread, once however many ask at the same time, one key after the other, and not
    at all where nobody waits for it any more.

    Kept are the values that were used last. What is leased and what is kept stay within ``max_bytes``, beside the one
    value that is being made; who asks for a value that does not fit beside those in use waits until one is given back.
    A single value larger than the bound is made all the same. A build that fails drops nothing. For the coroutines of
    one event loop.
    """

    def __init__(self, build: Callable[[K], V], cost_bytes: Callable[[K], int], max_bytes: int) -> None:
        self._build = build
        self._cost_bytes = cost_bytes
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        """The least recently used first."""
        self._builds: dict[K, asyncio.Task[None]] = {}
        self._askers: Counter[K] = Counter()
        self._one_build = asyncio.Lock()
        self._given_back = asyncio.Event()

    @property
    def held_bytes(self) -> int:
        """What the values cost together."""
        return sum(entry.cost_bytes for entry in self._entries.values())

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        """Forget these values; those in use when they are given back."""
        for key in [key for key in self._entries if unwanted(key)]:
            del self._entries[key]

    @asynccontextmanager
    async def lease(self, key: K) -> AsyncIterator[V]:
        """The value of ``key``, kept while the block runs. Raises what ``build`` raises."""
        while (entry := self._entries.get(key)) is None:
            if (task := self._builds.get(key)) is None:
                task = self._builds[key] = asyncio.create_task(self._make(key))
                task.add_done_callback(_retrieve)
            self._askers[key] += 1
            try:
                await asyncio.shield(task)  # who leaves does not take the value from those that wait as well
            finally:
                self._askers[key] -= 1
        entry.leases += 1
        self._entries.move_to_end(key)
        try:
            yield entry.value
        finally:
            entry.leases -= 1
            self._evict()
            self._given_back.set()

    async def _make(self, key: K) -> None:
        try:
            async with self._one_build:
                cost = self._cost_bytes(key)
                while (leased := self._leased_bytes()) and leased + cost > self._max_bytes:
                    self._given_back.clear()
                    await self._given_back.wait()
                if not self._askers[key]:  # all of them have left
                    return
                value = await in_own_thread(lambda: self._build(key))
                self._entries[key] = _Entry(value, cost)
                self._evict(keep=key)
        finally:
            del self._builds[key]
            self._askers = +self._askers  # without those at 0

    def _leased_bytes(self) -> int:
        return sum(entry.cost_bytes for entry in self._entries.values() if entry.leases)

    def _evict(self, keep: K | None = None) -> None:
        """Drop what was not used for longest until the rest fits; ``keep`` was made for somebody who comes next."""
        over = self.held_bytes - self._max_bytes
        for key, entry in list(self._entries.items()):
            if over <= 0:
                return
            if not entry.leases and key != keep:
                del self._entries[key]
                over -= entry.cost_bytes


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Look at the outcome, so that a build whose askers all left does not count as an error nobody saw."""
    if not task.cancelled():
        task.exception()
