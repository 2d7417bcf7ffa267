"""Fetching from a server that misbehaves in every way."""

import asyncio
import gzip
import os
from functools import partial

import pytest

from models import __version__
from models.errors import ImageError
from tests.serving.fetching.support import (
    PICTURE,
    Answer,
    Connection,
    endless,
    failure,
    fetch,
    local_fetcher,
    nothing,
    redirect,
    response,
    silent,
    web,
)
from tests.serving.support import png


def test_a_picture_and_what_is_asked_for_it() -> None:
    body, server = fetch({"/a%20b.png?x=1": PICTURE}, "/a b.png?x=1#part")
    assert body == png()
    [(path, headers)] = server.asked
    assert path == "/a%20b.png?x=1"
    assert headers.pop("accept").startswith("image/")
    assert headers == {
        "host": f"pictures.test:{server.port}",
        "user-agent": f"limner/{__version__} (image captioning server)",
        "accept-encoding": "identity",
        "connection": "close",
    }


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        response(png(), content_type="text/plain"),
        response(png(), content_type="text/html"),
        b"HTTP/1.0 200 OK\r\n\r\n" + png(),
        CHUNKED + b"%x;x=y\r\n%s\r\n0\r\n\r\n" % (len(png()), png()),
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + PICTURE,
        response(png(), content_encoding="identity"),
        response(png(), set_cookie="a=b"),
        PICTURE + b"and more than was promised",
    ],
)
def test_answers_that_will_do(answer: bytes) -> None:
    assert fetch({"/": answer})[0] == png()


def test_the_environment_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert fetch({"/": PICTURE})[0] == png()


@pytest.mark.parametrize(
    "status", ["403 Forbidden", "404 Not Found", "500 Oh", "204 No Content", "206 Part", "304 Same"]
)
def test_a_status_is_named(status: str) -> None:
    detail = failure({"/": response(b"<html>no</html>" * (status[0] != "2"), status, content_type="text/html")})
    assert detail == f"'pictures.test' answered {status[:3]} instead of a picture"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<!DOCTYPE html><html>", "text/html; charset=utf-8"),
        (b"\n <p>", "Text/HTML"),
        (b"<html>", "image/png"),
        (b"<?xml version='1.0'?><html/>", "application/xhtml+xml"),
    ],
)
def test_a_web_page(body: bytes, kind: str) -> None:
    assert "answered 200 with a web page" in failure({"/": response(body, content_type=kind)})


def test_what_else_is_no_picture_is_for_the_captioner_to_say() -> None:
    assert fetch({"/": response(b"<svg/>", content_type="image/svg+xml")})[0] == b"<svg/>"
    assert fetch({"/": response(b"")})[0] == b""


async def drip(head: bytes, connection: Connection) -> None:
    await connection.send(head)
    while True:
        await connection.send(b"x")
        await asyncio.sleep(0.02)


SLOW: dict[str, Answer] = {
    "no_headers": silent,
    "slow_headers": partial(drip, b"HTTP/1.1 200 OK\r\nx: "),
    "no_body": partial(drip, b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\nx: "),
    "a_byte_at_a_time": partial(drip, b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"),
    "early_hints_for_ever": partial(endless, b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
}


@pytest.mark.parametrize("kind", SLOW)
def test_slow_servers_are_left_at_the_deadline(kind: str) -> None:
    assert failure({"/": SLOW[kind]}, url_timeout_s=0.3) == "'pictures.test' did not send the picture within 0.3 s"


def test_the_deadline_is_that_of_all_hops() -> None:
    async def late(connection: Connection) -> None:
        await asyncio.sleep(0.15)
        await connection.send(redirect("/"))

    assert "within 0.4 s" in failure({"/": late}, url_timeout_s=0.4)


LARGE: dict[str, Answer] = {
    "declared": response(b"", content_length="1000000000000"),
    "declared_past_64_bits": response(b"", content_length="9" * 20),
    "endless": partial(endless, b"HTTP/1.1 200 OK\r\n\r\n", bytes(65536)),
    "endless_chunks": partial(endless, CHUNKED, b"10000\r\n" + bytes(65536) + b"\r\n"),
    "tiny_chunks": partial(endless, CHUNKED, b"1\r\nx\r\n" * 10000),
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_bodies_are_left_at_the_limit(kind: str) -> None:
    detail = failure({"/": LARGE[kind]}, code="too_large", max_image_bytes=20_000)
    assert detail == "the file at this url has more than 20000 bytes"


def test_the_limit_itself_is_allowed() -> None:
    assert len(fetch({"/": response(bytes(20_000))}, max_image_bytes=20_000)[0]) == 20_000


def test_others_have_their_turn_between_tiny_chunks() -> None:
    turns = 0

    async def whole() -> None:
        nonlocal turns
        async with web({"/": CHUNKED + b"1\r\nx\r\n" * 2000 + b"0\r\n\r\n"}) as server:
            fetching = asyncio.ensure_future(local_fetcher().fetch(server.url("/"), nothing))
            while not fetching.done():
                turns += 1
                await asyncio.sleep(0)
            assert await fetching == b"x" * 2000

    asyncio.run(whole())
    assert turns > 2000


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "deflate, gzip"])
def test_nothing_is_decompressed(encoding: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    detail = failure({"/": response(bomb, content_encoding=encoding)}, max_image_bytes=20_000)
    assert "compressed" in detail and encoding.lower() in detail


BROKEN: dict[str, Answer] = {
    "length_lie": response(png(), content_length=str(len(png()) + 1)),
    "two_lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
    "length_past_any_number": response(b"x", content_length="9" * 5000),
    "negative_length": response(b"x", content_length="-1"),
    "chunks_cut": CHUNKED + b"10\r\nabc",
    "bad_chunks": CHUNKED + b"zz\r\nabc",
    "long_header": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000 + b"\r\n\r\n",
    "many_headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000 + b"\r\n",
    "no_answer": b"",
    "half_a_head": b"HTTP/1.1 200 OK\r\ncontent-",
}
NOT_HTTP: dict[str, Answer] = {
    "garbage": b"\x00\xff garbage \r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "http_0_9": b"<html>hello</html>",
    "http_2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_answers(kind: str) -> None:
    assert "broke" in failure({"/": BROKEN[kind]})


@pytest.mark.parametrize("kind", NOT_HTTP)
def test_what_does_not_speak_http(kind: str) -> None:
    """It may close before it has read the request, so that the connection breaks as well."""
    detail = failure({"*": NOT_HTTP[kind]})
    assert "broke" in detail and "garbage" not in detail


def test_a_port_that_nobody_listens_on() -> None:
    async def whole() -> None:
        async with web({}) as server:
            url = server.url("/")
        await local_fetcher().fetch(url, nothing)

    with pytest.raises(ImageError, match="^url_failed: no connection to 'pictures.test' could be made"):
        asyncio.run(whole())


def test_many_faults_at_a_time_leave_nothing_behind() -> None:
    pages: dict[str, Answer] = {f"/{name}": page for name, page in {**BROKEN, **SLOW, **LARGE}.items()}

    async def whole() -> None:
        async with web(pages) as server:
            fetcher = local_fetcher(url_timeout_s=0.5, max_image_bytes=100_000)
            open_before = len(os.listdir("/proc/self/fd"))
            tasks = [
                asyncio.create_task(fetcher.fetch(server.url(path, scheme=scheme), nothing))
                for path in pages
                for scheme in ("http", "https")
                for _ in range(2)
            ]
            await server.until(lambda web: web.accepted >= 20)
            for task in tasks[::3]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(one) for one in done} <= {ImageError, asyncio.CancelledError}
            async with asyncio.timeout(20):  # the server has yet to take connections that nobody waits for any more
                while len(os.listdir("/proc/self/fd")) > open_before or len(asyncio.all_tasks()) > 1:
                    await asyncio.sleep(0.01)

    asyncio.run(whole())
