"""Bodies that are too large or too slow."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from models.errors import RequestError
from serving.middleware.body_limits import BodyLimits


def read_through(
    chunks: list[bytes], *, announced: str | None = None, pauses_s: list[float] | None = None, limit: int = 10
) -> bytes:
    """What a route reads of a body that arrives in ``chunks``."""
    body = b""
    pauses: Iterator[float] = iter(pauses_s or [])

    async def receive() -> Message:
        await asyncio.sleep(next(pauses, 0))
        chunk = chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

    async def route(scope: Scope, receive: Receive, _send: Send) -> None:
        nonlocal body
        body = await Request(scope, receive).body()

    async def send(_message: Message) -> None:
        raise AssertionError("nothing is sent here")

    headers = [] if announced is None else [(b"content-length", announced.encode())]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "headers": headers}
    asyncio.run(BodyLimits(route, max_body_bytes=limit, timeout_s=0.1)(scope, receive, send))
    return body


def test_a_body_within_the_limits_passes() -> None:
    assert read_through([b"12345", b"67890"], announced="10") == b"1234567890"


def test_an_announced_size_is_refused_before_anything_is_read() -> None:
    chunks = [b"never read"]
    with pytest.raises(RequestError) as caught:
        read_through(chunks, announced="11")
    assert caught.value.code == "body_too_large"
    assert chunks == [b"never read"]


@pytest.mark.parametrize("announced", [None, "5", "nonsense"])
def test_chunks_are_counted_whatever_was_announced(announced: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        read_through([b"12345", b"67890", b"1", b"never read"], announced=announced)
    assert caught.value.code == "body_too_large"


def test_the_deadline_is_for_the_whole_body() -> None:
    with pytest.raises(RequestError) as caught:
        read_through([b"1"] * 5, pauses_s=[0.04] * 5)
    assert caught.value.code == "body_timeout"


def test_waiting_for_the_disconnect_has_no_deadline() -> None:
    async def scenario() -> str:
        messages: list[Message] = [{"type": "http.request", "body": b"1"}, {"type": "http.disconnect"}]
        seen = ""

        async def receive() -> Message:
            await asyncio.sleep(0 if len(messages) == 2 else 0.2)
            return messages.pop(0)

        async def route(_scope: Scope, receive: Receive, _send: Send) -> None:
            nonlocal seen
            await receive()
            seen = (await receive())["type"]

        async def send(_message: Message) -> None: ...

        await BodyLimits(route, max_body_bytes=10, timeout_s=0.1)({"type": "http", "headers": []}, receive, send)
        return seen

    assert asyncio.run(scenario()) == "http.disconnect"
