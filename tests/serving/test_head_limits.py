"""Heads that are slow or large, and those that are not."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
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
        if scope["path"] == "/slow":
            await asyncio.sleep(1)
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


UPGRADE = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMAAABk")
SLOW = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"


def test_an_offer_of_another_protocol_is_not_taken_up(url: str) -> None:
    whole = post("/", b"abc", *UPGRADE)
    with connected(url) as connection:
        for _ in range(2):
            assert connection.send(whole).answer().body == b"3"
        for byte in whole:
            connection.send(bytes([byte]))
        assert connection.answer().body == b"3"
        assert connection.send(GET + b"\r\n").answer().body == b"0"


def test_nor_is_a_body_after_it_another_request(url: str) -> None:
    hidden = GET + b"\r\n"
    whole = post("/", hidden, *UPGRADE)
    for sent in ([whole], [whole[: -len(hidden)], hidden]):
        with connected(url) as connection:
            assert connection.send(*sent).answer().body == str(len(hidden)).encode()
            assert connection.send(post("/", b"xy")).answer().body == b"2"  # and nothing before it


def test_a_tunnel_is_refused(url: str) -> None:
    assert ask(url, b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n").status == 400


@pytest.mark.parametrize("rest", [b"", b"x: " + b"a" * 100, *[b"x: " + b"a" * size for size in (3 << 20, 20 << 20)]])
def test_a_head_behind_an_answer_under_way_is_bounded_too(url: str, rest: bytes) -> None:
    with connected(url) as connection:
        connection.send(SLOW)
        time.sleep(0.1)  # the answer is under way
        with suppress(OSError):
            connection.send(GET, *(rest[at : at + 50_000] for at in range(0, len(rest), 50_000)))
        assert connection.answer().status == 200
        if len(rest) > MAX_HEAD_BYTES:
            assert connection.answer().status == 400
        assert connection.ended()


def test_what_cannot_be_read_is_said_after_the_answers_before_it(url: str) -> None:
    with connected(url) as connection:
        connection.send(SLOW + GET + b"\r\n" + b"GARBAGE\r\n\r\n")
        assert [connection.answer().status for _ in range(3)] == [200, 200, 400]
        assert connection.ended()


def test_a_broken_body_is_400_at_once(url: str) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    for before in (b"", SLOW):
        with connected(url) as connection:
            connection.send(before, head + b"3\r\nabc\r\n", b"no length\r\n")
            statuses = [connection.answer().status for _ in range(2 if before else 1)]
            assert statuses == ([200, 400] if before else [400])
            assert connection.ended()


def test_a_client_that_leaves_while_answers_wait_is_no_failure(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with connected(url) as connection:
        connection.send(SLOW * 3)
        time.sleep(0.1)
    with connected(url) as another:
        assert another.send(SLOW).answer().status == 200
    assert not [record for record in caplog.records if record.exc_info]
