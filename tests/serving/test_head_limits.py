"""Heads that are slow or large, and those that are not."""

from collections.abc import Iterator
from typing import Any

import pytest

from serving import head_limits
from serving.head_limits import MAX_HEAD_BYTES, HeadLimitsProtocol
from tests.serving.raw_http import ask, connected, post, served

GET = b"GET / HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        text = str(size).encode()
        headers = [(b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_limits, "HEAD_TIMEOUT_S", 0.3)
        with served(app, http=HeadLimitsProtocol, lifespan="off") as url:
            yield url


@pytest.mark.parametrize("begun", [b"", b"\r\n", b"GET", GET, GET + b"x: "])
def test_a_head_that_does_not_come_closes_the_connection(url: str, begun: bytes) -> None:
    with connected(url) as connection:
        assert connection.send(begun).ended()


def test_nor_does_a_later_one_on_the_same_connection(url: str) -> None:
    with connected(url) as connection:
        assert connection.send(GET + b"\r\n").answer().status == 200
        assert connection.send(GET).ended()


def test_the_time_is_for_heads_alone(url: str) -> None:
    """Neither a slow body nor a pause between requests is cut off by it."""
    with connected(url) as slow, connected(url) as others:
        slow.send(post("/", b"ab")[:-1])
        kept = [others.send(GET + b"\r\n").answer() for _ in range(2)]
        with connected(url) as late:
            assert late.ended()  # the time is over
        assert slow.send(b"b").answer().body == b"2"
        assert [answer.status for answer in (*kept, others.send(GET + b"\r\n").answer())] == [200] * 3


@pytest.mark.parametrize(
    "head",
    [
        GET + b"x: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n",
        GET + b"".join(b"x%d: y\r\n" % number for number in range(9000)) + b"\r\n",
        GET + b"x: " + b"a" * 2 * MAX_HEAD_BYTES,
        b"GET /" + b"a" * 2 * MAX_HEAD_BYTES,
    ],
)
def test_a_large_head_is_400(url: str, head: bytes) -> None:
    with connected(url) as connection:
        answer = connection.send(head).answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")


def test_heads_within_the_limit_and_large_bodies_pass(url: str) -> None:
    head = b"x: " + b"a" * (MAX_HEAD_BYTES - 1000)
    assert ask(url, post("/", bytes(1 << 20), head)).body == str(1 << 20).encode()
    with connected(url) as connection:
        connection.send((GET + head + b"\r\n\r\n") * 3)
        assert [connection.answer().status for _ in range(3)] == [200] * 3
