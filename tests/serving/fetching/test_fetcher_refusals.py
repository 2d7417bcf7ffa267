"""Redirects, and what is refused at any hop: nobody is dialed for it."""

import asyncio
from functools import partial

import pytest

from models.errors import ImageError
from serving.args import Limits
from serving.fetching.fetcher import UrlFetcher
from tests.serving.fetching.support import (
    PICTURE,
    Answer,
    Names,
    NoDial,
    endless,
    failure,
    fetch,
    nothing,
    redirect,
)
from tests.serving.support import png


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
    answer = partial(endless, b"HTTP/1.1 302 Found\r\nlocation: /b.png\r\n\r\n", bytes(65536))
    assert fetch({"/": answer, "/b.png": PICTURE})[0] == png()


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
