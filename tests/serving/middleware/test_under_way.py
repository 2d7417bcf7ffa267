"""The count of requests under way."""

import asyncio
from typing import Any

import pytest

from serving.middleware.under_way import Count, UnderWay


def test_it_waits_for_answers_and_counts_failures_out() -> None:
    count, go = Count(), asyncio.Event()

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        if scope["path"] == "/fails":
            raise OSError
        await go.wait()

    async def nothing(*_: Any) -> Any: ...

    async def scenario() -> None:
        counted = UnderWay(app, count=count)
        answering = asyncio.create_task(counted({"type": "http", "path": "/"}, nothing, nothing))
        await asyncio.sleep(0)  # it begins
        with pytest.raises(OSError):
            await counted({"type": "http", "path": "/fails"}, nothing, nothing)
        assert count.requests == 1
        assert not await count.none(0.01)
        waiting = asyncio.create_task(count.none(10))
        go.set()
        await answering
        assert await waiting

    asyncio.run(scenario())


def test_whoever_wants_to_know_is_told() -> None:
    told: list[int] = []
    count = Count(told.append)

    async def nothing(*_: Any) -> Any: ...

    asyncio.run(UnderWay(nothing, count=count)({"type": "http", "path": "/"}, nothing, nothing))
    assert told == [1, 0]
