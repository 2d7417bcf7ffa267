"""Work is given up when its client is gone, and only then."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi import Request
from starlette.requests import ClientDisconnect

from models.errors import OverloadedError
from serving.client_watch import unless_gone
from serving.middleware.body_limits import BodyLimits

Message = dict[str, Any]


class Client:
    """What a server tells of one client: the rest of its body, then nothing until it leaves."""

    def __init__(self, *messages: Message) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages:
            self.messages.put_nowait(message)

    async def receive(self) -> Message:
        return await self.messages.get()

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})


class Work:
    """Waits to be told; knows whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> str:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "done"


def request_of(receive: Callable[[], Awaitable[Message]]) -> Request:
    return Request({"type": "http"}, receive)


def test_the_result_when_the_client_stays() -> None:
    async def scenario() -> None:
        work = Work()
        answer = asyncio.create_task(unless_gone(request_of(Client().receive), work()))
        await work.begun.wait()
        work.go.set()
        assert await answer == "done"

    asyncio.run(scenario())


def test_work_is_cancelled_when_the_client_leaves() -> None:
    async def scenario() -> None:
        client, work = Client({"type": "http.request", "body": b"", "more_body": False}), Work()
        answer = asyncio.create_task(unless_gone(request_of(client.receive), work()))
        await work.begun.wait()
        client.leave()
        with pytest.raises(ClientDisconnect):
            await answer
        assert work.cancelled

    asyncio.run(scenario())


def test_work_is_cancelled_with_its_request() -> None:
    async def scenario() -> None:
        work = Work()
        answer = asyncio.create_task(unless_gone(request_of(Client().receive), work()))
        await work.begun.wait()
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answer
        assert work.cancelled

    asyncio.run(scenario())


def test_an_error_of_the_work_is_the_answer() -> None:
    async def full() -> None:
        raise OverloadedError("queue_full", "no")

    with pytest.raises(OverloadedError):
        asyncio.run(unless_gone(request_of(Client().receive), full()))


def test_a_client_that_cannot_be_watched_is_answered() -> None:
    async def broken() -> Message:
        raise OSError

    async def scenario() -> None:
        work = Work()
        answer = asyncio.create_task(unless_gone(request_of(broken), work()))
        await work.begun.wait()
        work.go.set()
        assert await answer == "done"

    asyncio.run(scenario())


def test_the_limits_of_the_body_end_with_it() -> None:
    """The watch may outlast the time that a body has: it waits behind the middleware."""

    async def scenario() -> None:
        client, work, left = Client({"type": "http.request", "body": b"x", "more_body": False}), Work(), asyncio.Event()

        async def app(scope: Any, receive: Any, _send: Any) -> None:
            request = Request(scope, receive)
            assert await request.body() == b"x"
            await asyncio.sleep(0.02)  # past the limit
            with pytest.raises(ClientDisconnect):
                await unless_gone(request, work())
            left.set()

        limited = BodyLimits(app, max_body_bytes=10, timeout_s=0.01)

        async def send(_message: Any) -> None: ...

        serving = asyncio.create_task(limited({"type": "http", "headers": []}, client.receive, send))
        await work.begun.wait()
        client.leave()
        await serving
        assert left.is_set() and work.cancelled

    asyncio.run(scenario())
