"""Fetching from a server that misbehaves in every way; refusals that nobody is dialed for."""

import asyncio
import gzip
import os
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import trustme

from models import __version__
from models.errors import ImageError
from serving.args import Limits
from serving.fetching.fetcher import UrlFetcher
from tests.serving.fetching.support import (
    Answer,
    Connection,
    Names,
    NoDial,
    Web,
    local_fetcher,
    redirect,
    response,
    web,
)
from tests.serving.support import png

PICTURE = response(png(), content_type="image/png")


def nothing(_taken: int) -> None: ...


def fetch(pages: Mapping[str, Answer], path: str = "/", names: Names | None = None, **limits: Any) -> tuple[bytes, Web]:
    """What is fetched from the path, and the server afterwards."""

    async def whole() -> tuple[bytes, Web]:
        async with web(pages) as server:
            targets = {
                key: value.replace(b"PORT", str(server.port).encode()) if isinstance(value, bytes) else value
                for key, value in pages.items()
            }
            server._pages = targets
            return await local_fetcher(names, **limits).fetch(server.url(path), nothing), server

    return asyncio.run(whole())


def failure(pages: Mapping[str, Answer], code: str = "url_failed", **options: Any) -> str:
    """The detail of what ``fetch`` raises; by then the server has seen every connection end."""
    with pytest.raises(ImageError) as caught:
        fetch(pages, **options)
    assert caught.value.code == code, caught.value
    assert "127.0.0.1" not in caught.value.detail
    return caught.value.detail


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


async def _drip(head: bytes, connection: Connection) -> None:
    await connection.send(head)
    while True:
        await connection.send(b"x")
        await asyncio.sleep(0.02)


async def _endless(head: bytes, piece: bytes, connection: Connection) -> None:
    await connection.send(head)
    while True:
        await connection.send(piece)


async def _silent(connection: Connection) -> None:
    await connection.until_left()


SLOW: dict[str, Answer] = {
    "no_headers": _silent,
    "slow_headers": partial(_drip, b"HTTP/1.1 200 OK\r\nx: "),
    "no_body": partial(_drip, b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\nx: "),
    "a_byte_at_a_time": partial(_drip, b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"),
    "early_hints_for_ever": partial(_endless, b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
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
    "endless": partial(_endless, b"HTTP/1.1 200 OK\r\n\r\n", bytes(65536)),
    "endless_chunks": partial(_endless, CHUNKED, b"10000\r\n" + bytes(65536) + b"\r\n"),
    "tiny_chunks": partial(_endless, CHUNKED, b"1\r\nx\r\n" * 10000),
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


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed(status: int) -> None:
    names = Names(pictures_test="127.0.0.1", other_test="127.0.0.1")
    body, server = fetch({"/": redirect("//other.test:PORT/b.png", status), "/b.png": PICTURE}, names=names)
    assert body == png()
    assert [headers["host"] for _, headers in server.asked] == [
        f"pictures.test:{server.port}",
        f"other.test:{server.port}",
    ]


def test_five_redirects_are_followed_and_no_sixth() -> None:
    hops: dict[str, Answer] = {f"/{n}": redirect(f"/{n + 1}") for n in range(6)}
    body, server = fetch(hops | {"/6": PICTURE}, "/1")
    assert (body, len(server.asked)) == (png(), 6)
    assert failure(hops | {"/6": PICTURE}, path="/0") == "more than 5 redirects, the last to 'pictures.test'"
    assert "more than 5 redirects" in failure({"/": redirect("/")})


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("http://inside.test:PORT/", "the host 'inside.test' is not on the public internet"),
        ("http://mixed.test/", "'mixed.test' is not on the public internet"),
        ("file:///etc/passwd", "only http:// and https://"),
        ("ftp://pictures.test/", "only http:// and https://"),
        ("http://me:secret@pictures.test:PORT/", "user name or password"),
        ("http://elsewhere.test/", "'elsewhere.test' is not among those"),
    ],
)
def test_redirects_are_checked_as_the_url_is(to: str, told: str) -> None:
    names = Names(
        pictures_test="127.0.0.1", inside_test="10.0.0.1", mixed_test="127.0.0.1 10.0.0.1", elsewhere_test="127.0.0.1"
    )
    hosts = ("pictures.test", "inside.test", "mixed.test")
    detail = failure({"/": redirect(to)}, code="url_refused", names=names, url_hosts=hosts)
    assert told in detail
    assert "secret" not in detail and "10.0" not in detail


@pytest.mark.parametrize("to", ["", "http://", "http://[::1/", "http://missing.test/", "http://ü\udcff/"])
def test_redirects_to_nowhere(to: str) -> None:
    failure({"/": b"HTTP/1.1 302 Found\r\nlocation: " + to.encode("utf-8", "surrogateescape") + b"\r\n\r\n"})


def test_a_redirect_of_which_the_body_never_ends() -> None:
    endless = partial(_endless, b"HTTP/1.1 302 Found\r\nlocation: /b.png\r\n\r\n", bytes(65536))
    assert fetch({"/": endless, "/b.png": PICTURE})[0] == png()


# Refusals: nobody is dialed


def refused(url: str, names: Names | None = None, dial: NoDial | None = None) -> ImageError:
    dial = dial or NoDial()
    fetcher = UrlFetcher(Limits(urls=True), resolve=names, dial=dial)
    with pytest.raises(ImageError) as caught:
        asyncio.run(fetcher.fetch(url, nothing))
    assert dial.dialed == []
    return caught.value


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0177.1", "localhost", "localhost."),
        *("169.254.169.254", "10.0.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[fe80::1]"),
        *("[2002:7f00:1::]", "[64:ff9b::7f00:1]", "[fd00:ec2::254]", "100.100.100.200", "224.0.0.1"),
    ],
)
def test_addresses_of_this_machine_and_its_network(host: str) -> None:
    """By the system's own resolver, which asks no name server for any of these."""
    assert refused(f"http://{host}/latest/meta-data/").code == "url_refused"


def test_names_of_addresses_within() -> None:
    assert refused("https://inside.test/", Names(inside_test="192.168.1.7")).code == "url_refused"
    assert refused("https://inside.test/", Names(inside_test="1.0.0.1 192.168.1.7")).code == "url_refused"


def test_a_name_that_changes_its_address_is_dialed_where_it_was_checked() -> None:
    """DNS rebinding: a second look-up would find this machine."""
    names, dial = Names(rebind_test=["1.0.0.1", "127.0.0.1"]), NoDial()
    fetcher = UrlFetcher(Limits(urls=True), resolve=names, dial=dial)
    with pytest.raises(ImageError, match="no connection"):
        asyncio.run(fetcher.fetch("http://rebind.test:8080/", nothing))
    assert (names.asked, dial.dialed) == (["rebind.test"], [("1.0.0.1", 8080)])
    with pytest.raises(ImageError, match="not on the public internet"):
        asyncio.run(fetcher.fetch("http://rebind.test:8080/", nothing))
    assert dial.dialed == [("1.0.0.1", 8080)]


def test_a_name_that_changes_its_address_between_hops() -> None:
    names = Names(pictures_test=["127.0.0.1", "10.0.0.1"])
    assert "public internet" in failure({"/": redirect("/b"), "/b": PICTURE}, code="url_refused", names=names)


@pytest.mark.parametrize("hosts", [None, ("example.org",)])
def test_hosts_of_a_private_network_are_dialed_where_the_operator_names_them(hosts: tuple[str, ...] | None) -> None:
    names = Names(
        store_lan=["10.0.0.5", "127.0.0.1", "169.254.169.254", "10.0.0.5 169.254.169.254"], other_lan="10.0.0.6"
    )
    dial = NoDial()
    limits = Limits(urls=True, url_hosts=hosts, url_internal_hosts=("store.lan",))
    fetcher = UrlFetcher(limits, resolve=names, dial=dial)

    def told(url: str) -> str:
        with pytest.raises(ImageError) as caught:
            asyncio.run(fetcher.fetch(url, nothing))
        return str(caught.value)

    assert told("http://STORE.lan.:9000/a.png").startswith("url_failed: no connection")
    assert dial.dialed == [("10.0.0.5", 9000)]
    for _ in range(3):
        assert told("http://store.lan/").startswith("url_refused: the host 'store.lan' is not on the public internet")
    for url in ("http://other.lan/", "http://a.store.lan/", "http://10.0.0.5/"):
        assert told(url).startswith(("url_refused", "url_failed: the host 'a.store.lan' has no address"))
    assert len(dial.dialed) == 1


# TLS

CA = trustme.CA()


def over_tls(served_as: str, trusted: trustme.CA | None) -> bytes:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert(served_as).configure_cert(theirs)
    ours = ssl.create_default_context()
    if trusted is not None:
        trusted.configure_trust(ours)

    async def whole() -> bytes:
        async with web({"/": PICTURE}, tls=theirs) as server:
            return await local_fetcher(tls=ours).fetch(server.url("/", scheme="https"), nothing)

    return asyncio.run(whole())


def test_tls_goes_by_the_name_though_an_address_is_dialed() -> None:
    assert over_tls("pictures.test", CA) == png()


@pytest.mark.parametrize(
    ("served_as", "trusted"),
    [("other.test", CA), ("127.0.0.1", CA), ("pictures.test", None), ("pictures.test", trustme.CA())],
)
def test_certificates_that_do_not_fit(served_as: str, trusted: trustme.CA | None) -> None:
    with pytest.raises(ImageError, match="^url_failed: no secure connection to 'pictures.test'"):
        over_tls(served_as, trusted)


def test_no_tls_where_there_should_be() -> None:
    async def whole() -> None:
        async with web({"*": b"HTTP/1.1 400 Bad Request\r\n\r\n"}) as server:
            await local_fetcher().fetch(server.url("/", scheme="https"), nothing)

    with pytest.raises(ImageError, match="^url_failed: no secure connection"):
        asyncio.run(whole())


def test_a_handshake_that_never_comes_leaves_no_connection() -> None:
    async def whole() -> None:
        async with web({"*": _silent}) as server:
            with pytest.raises(ImageError, match="within 0.5 s"):
                await local_fetcher(url_timeout_s=0.5).fetch(server.url("/", scheme="https"), nothing)
            await server.until(lambda web: web.accepted == 1 and web.open == 0)

    asyncio.run(whole())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_cancelling_closes_the_connection(scheme: str) -> None:
    async def whole() -> None:
        async with web({"*": _silent}) as server:
            fetching = asyncio.ensure_future(local_fetcher().fetch(server.url("/", scheme=scheme), nothing))
            await server.until(lambda web: web.open == 1)
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
            await server.until(lambda web: web.open == 0)

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
            await server.until(lambda web: web.open == 0)
            assert asyncio.all_tasks() - {asyncio.current_task()} == set()
            assert len(os.listdir("/proc/self/fd")) <= open_before + 2  # threads' and the loop's own

    asyncio.run(whole())
