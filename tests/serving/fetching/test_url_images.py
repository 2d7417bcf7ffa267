"""Bounds on what is fetched at a time, for a request and for all of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from models.errors import ImageError, OverloadedError
from serving.args import Limits
from serving.fetching.url_images import UrlImages
from serving.messages import Failure


class Fetches:
    """Fetches that end when they are told to; a URL says how large its picture is."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.running = 0
        self.most = 0
        self.cancelled = 0
        self.go = asyncio.Event()
        self.changed = asyncio.Condition()

    async def __call__(self, url: str, take: Callable[[int], None]) -> bytes:
        self.begun.append(url)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            async with self.changed:
                self.changed.notify_all()
            await self.go.wait()
            if url == "bad":
                raise ImageError("url_failed", "bad")
            size = int(url.rpartition(":")[2])
            take(size)
            return bytes(size)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def until(self, begun: int) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(lambda: len(self.begun) >= begun)


def images(fetches: Fetches, **limits: Any) -> UrlImages:
    return UrlImages(Limits(urls=True, **limits), fetches)


def urls(count: int, size: int = 1, name: str = "u") -> list[str]:
    return [f"{name}{index}:{size}" for index in range(count)]


def test_nothing_is_fetched_where_urls_are_not_allowed() -> None:
    assert UrlImages.from_limits(Limits()) is None
    assert UrlImages.from_limits(Limits(urls=True)) is not None


def test_each_url_is_fetched_once_and_fails_alone() -> None:
    async def scenario() -> None:
        fetches = Fetches()
        fetches.go.set()
        found = await images(fetches).fetched(["a:3", "bad", "b:2", "a:3"])
        assert found == {"a:3": bytes(3), "bad": Failure("url_failed", "bad"), "b:2": bytes(2)}
        assert sorted(fetches.begun) == ["a:3", "b:2", "bad"]

    asyncio.run(scenario())


def test_a_request_fetches_few_at_a_time() -> None:
    async def scenario() -> None:
        fetches = Fetches()
        of_requests = images(fetches)
        task = asyncio.create_task(of_requests.fetched(urls(20)))
        await fetches.until(8)
        assert of_requests.under_way == 20
        fetches.go.set()
        assert len(await task) == 20
        assert (fetches.most, of_requests.under_way) == (8, 0)

    asyncio.run(scenario())


def test_all_requests_together_fetch_few_at_a_time() -> None:
    async def scenario() -> None:
        fetches = Fetches()
        of_requests = images(fetches, max_url_fetches=10)
        tasks = [asyncio.create_task(of_requests.fetched(urls(6, name=name))) for name in "abc"]
        await fetches.until(10)
        fetches.go.set()
        assert [len(await task) for task in tasks] == [6, 6, 6]
        assert fetches.most == 10

    asyncio.run(scenario())


def test_more_than_may_wait_are_refused_and_leave_no_trace() -> None:
    async def scenario() -> None:
        fetches = Fetches()
        of_requests = images(fetches, max_images=4, max_queue_images=4)
        task = asyncio.create_task(of_requests.fetched(urls(3)))
        await fetches.until(3)
        with pytest.raises(OverloadedError, match="^queue_full: 3 images wait to be fetched by url; 2 more exceed 4"):
            await of_requests.fetched(urls(2))
        fetches.go.set()
        await task
        assert len(await of_requests.fetched(urls(4))) == 4

    asyncio.run(scenario())


def test_a_request_downloads_no_more_than_it_might_have_sent() -> None:
    async def scenario() -> None:
        fetches = Fetches()
        fetches.go.set()
        of_requests = images(fetches, max_body_bytes=1000)
        found = await of_requests.fetched(urls(3, size=400))
        assert [isinstance(one, bytes) for one in found.values()] == [True, True, False]
        assert found["u2:400"] == Failure("too_large", "the images of this request have more than 1000 bytes together")
        assert all(isinstance(one, bytes) for one in (await of_requests.fetched(urls(2, size=500))).values())

    asyncio.run(scenario())


def test_who_leaves_takes_his_fetches_along() -> None:
    async def scenario() -> None:
        fetches = Fetches()
        of_requests = images(fetches, max_url_fetches=4)
        leaving = asyncio.create_task(of_requests.fetched(urls(20)))
        await fetches.until(4)
        staying = asyncio.create_task(of_requests.fetched(urls(3, name="stay")))
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert fetches.cancelled == 4
        fetches.go.set()
        assert len(await staying) == 3
        assert (of_requests.under_way, fetches.running) == (0, 0)
        assert len(fetches.begun) == 7  # of those that waited none was begun

    asyncio.run(scenario())
