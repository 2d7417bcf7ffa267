"""Single flight, bound, leases: the cache that mixes live in."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from serving.lease_cache import LeaseCache


class Workshop:
    """Makes strings, one at a time, when its gate is open."""

    def __init__(self, max_bytes: int = 3) -> None:
        self.made: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.cache: LeaseCache[str, str] = LeaseCache(self._build, lambda key: len(key), max_bytes)

    def _build(self, key: str) -> str:
        self.entered.set()
        assert self.gate.wait(10)
        self.made.append(key)
        if key == "!":
            raise ValueError("cannot be made")
        return key.upper()

    async def use(self, key: str) -> str:
        async with self.cache.lease(key) as value:
            return value


def run(scenario: Callable[[Workshop], Awaitable[None]], max_bytes: int = 3) -> None:
    async def whole() -> None:
        async with asyncio.timeout(20):
            await scenario(Workshop(max_bytes))

    asyncio.run(whole())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


def test_all_who_ask_at_once_share_one_build() -> None:
    async def scenario(shop: Workshop) -> None:
        assert await asyncio.gather(*(shop.use("a") for _ in range(5))) == ["A"] * 5
        assert await shop.use("a") == "A"
        assert shop.made == ["a"]

    run(scenario)


def test_what_was_used_longest_ago_goes_first() -> None:
    async def scenario(shop: Workshop) -> None:
        for key in ("a", "b", "c", "a", "d"):
            await shop.use(key)
        assert [key in shop.cache for key in "abcd"] == [True, False, True, True]
        assert shop.cache.held_bytes == 3

    run(scenario)


def test_what_is_leased_stays() -> None:
    async def scenario(shop: Workshop) -> None:
        async with shop.cache.lease("a") as value:
            for key in ("b", "c", "d", "e"):
                await shop.use(key)
            assert value == "A" and "a" in shop.cache and shop.cache.held_bytes == 3
        await shop.use("a")
        assert shop.made.count("a") == 1

    run(scenario)


def test_who_does_not_fit_beside_the_leased_waits() -> None:
    async def scenario(shop: Workshop) -> None:
        async with AsyncExitStack() as held:
            for key in "abc":
                await held.enter_async_context(shop.cache.lease(key))
            late = asyncio.create_task(shop.use("d"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not late.done() and shop.made == ["a", "b", "c"]
            assert await shop.use("a") == "A"  # what is there needs no room
        assert await late == "D"
        assert shop.cache.held_bytes <= 3

    run(scenario)


def test_one_larger_than_the_bound_is_made_and_not_kept() -> None:
    async def scenario(shop: Workshop) -> None:
        assert await shop.use("large") == "LARGE"
        assert shop.cache.held_bytes == 0

    run(scenario)


def test_a_failure_reaches_all_who_asked_and_drops_nothing() -> None:
    async def scenario(shop: Workshop) -> None:
        for key in "abc":
            await shop.use(key)
        found = await asyncio.gather(shop.use("!"), shop.use("!"), return_exceptions=True)
        assert [str(error) for error in found] == ["cannot be made"] * 2
        assert all(key in shop.cache for key in "abc")
        with pytest.raises(ValueError, match="cannot be made"):  # and is tried again
            await shop.use("!")
        assert shop.made.count("!") == 2

    run(scenario)


def test_who_leaves_takes_nothing_from_the_others() -> None:
    async def scenario(shop: Workshop) -> None:
        shop.gate.clear()
        first, second = (asyncio.create_task(shop.use("a")) for _ in range(2))
        await asyncio.to_thread(shop.entered.wait, 10)
        first.cancel()
        await until(first.done)
        shop.gate.set()
        assert await second == "A" and shop.made == ["a"]

    run(scenario)


def test_the_last_who_leaves_leaves_no_lease_behind() -> None:
    async def scenario(shop: Workshop) -> None:
        shop.gate.clear()
        only = asyncio.create_task(shop.use("abc"))
        await asyncio.to_thread(shop.entered.wait, 10)
        only.cancel()
        await until(only.done)
        shop.gate.set()
        assert await shop.use("xyz") == "XYZ"
        assert "abc" not in shop.cache

    run(scenario)


def test_what_nobody_waits_for_any_more_is_not_made() -> None:
    async def scenario(shop: Workshop) -> None:
        shop.gate.clear()
        first = asyncio.create_task(shop.use("a"))
        await asyncio.to_thread(shop.entered.wait, 10)
        leaving = [asyncio.create_task(shop.use(key)) for key in "bcde"]
        await asyncio.sleep(0)
        for task in leaving:
            task.cancel()
        await until(lambda: all(task.done() for task in leaving))
        shop.gate.set()
        assert await first == "A" and await shop.use("f") == "F"
        assert shop.made == ["a", "f"] and not shop.cache._builds

    run(scenario)


def test_a_build_holds_nobody_up_who_needs_none() -> None:
    async def scenario(shop: Workshop) -> None:
        await shop.use("a")
        shop.gate.clear()
        shop.entered.clear()
        slow = asyncio.create_task(shop.use("b"))
        await asyncio.to_thread(shop.entered.wait, 10)
        assert await shop.use("a") == "A"
        assert not slow.done()
        shop.gate.set()
        assert await slow == "B"

    run(scenario)


def test_what_is_dropped_while_leased_is_made_anew_for_others() -> None:
    async def scenario(shop: Workshop) -> None:
        async with shop.cache.lease("a") as value:
            await shop.use("b")
            shop.cache.drop(lambda key: key == "a")
            assert value == "A" and "a" not in shop.cache and "b" in shop.cache
            await shop.use("a")
        assert shop.made == ["a", "b", "a"] and shop.cache.held_bytes == 2

    run(scenario)
