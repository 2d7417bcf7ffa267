"""The pictures of requests that are given by URL: each fetched once, few at a time, all within bounds."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from models.errors import ImageError, OverloadedError
from serving.args import Limits
from serving.fetching.fetcher import UrlFetcher
from serving.messages import Failure

Fetch = Callable[[str, Callable[[int], None]], Awaitable[bytes]]

_MOST_PER_REQUEST = 8


class UrlImages:
    """One per ingress process. Bounded are the downloads at a time, of the process and of a request; the URLs that wait
    for one; and the bytes of a request, which may have no more than if it had sent the pictures itself."""

    def __init__(self, limits: Limits, fetch: Fetch) -> None:
        self._fetch = fetch
        self._slots = asyncio.Semaphore(limits.max_url_fetches)
        self._most_under_way = limits.max_queue_images
        self._max_request_bytes = limits.max_body_bytes
        self._under_way = 0

    @classmethod
    def from_limits(cls, limits: Limits) -> Self | None:
        """None where URLs are not allowed."""
        return cls(limits, UrlFetcher(limits).fetch) if limits.urls else None

    @property
    def under_way(self) -> int:
        """URLs that are fetched or wait for it."""
        return self._under_way

    async def fetched(self, urls: Iterable[str]) -> dict[str, bytes | Failure]:
        """What came of each URL of one request.

        Raises:
            OverloadedError: ``queue_full``.
        """
        wanted = tuple(dict.fromkeys(urls))
        own_slots = asyncio.Semaphore(_MOST_PER_REQUEST)
        take = _budget(self._max_request_bytes)

        async def one(url: str) -> bytes | Failure:
            async with own_slots, self._slots:
                try:
                    return await self._fetch(url, take)
                except ImageError as error:
                    return Failure(error.code, error.detail)

        with self._counted(len(wanted)):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(url)) for url in wanted]
            return {url: task.result() for url, task in zip(wanted, tasks, strict=True)}

    @contextmanager
    def _counted(self, urls: int) -> Iterator[None]:
        if self._under_way + urls > self._most_under_way:
            detail = f"{self._under_way} images wait to be fetched by url; {urls} more exceed {self._most_under_way}"
            raise OverloadedError("queue_full", detail)
        self._under_way += urls
        try:
            yield
        finally:
            self._under_way -= urls


def _budget(max_bytes: int) -> Callable[[int], None]:
    """Adds up what a request downloads, and raises ``too_large`` once it is more than ``max_bytes``."""
    left_bytes = max_bytes

    def take(piece_bytes: int) -> None:
        nonlocal left_bytes
        left_bytes -= piece_bytes
        if left_bytes < 0:
            raise ImageError("too_large", f"the images of this request have more than {max_bytes} bytes together")

    return take
