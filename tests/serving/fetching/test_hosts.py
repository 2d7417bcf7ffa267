"""What is seen of a URL before anything is looked up."""

import httpx
import pytest

from models.errors import ImageError
from serving.fetching.hosts import checked_url, host_of


@pytest.mark.parametrize(
    ("text", "host", "port", "target"),
    [
        ("http://example.org", "example.org", None, b"/"),
        (" HTTPS://EXAMPLE.org.:8443/a b.png?x=1&y=%20#part\n", "example.org", 8443, b"/a%20b.png?x=1&y=%20"),
        ("http://bücher.example/ü.png", "xn--bcher-kva.example", None, b"/%C3%BC.png"),
        ("http://[2606:4700::1111]:80/", "2606:4700::1111", None, b"/"),
        ("http://0x7f.1/", "0x7f.1", None, b"/"),  # the resolver says what that is
    ],
)
def test_what_may_be_looked_up(text: str, host: str, port: int | None, target: bytes) -> None:
    url = checked_url(text, None)
    assert (host_of(url), url.port, url.raw_path) == (host, port, target)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "url_refused") for text in ("", "x", "/etc/hostname", "//example.org/", "file:///etc/hostname")),
        *(
            (text, "url_refused")
            for text in ("ftp://example.org/", "gopher://example.org/", "data:image/png;base64,AA")
        ),
        *((text, "url_refused") for text in ("http://me@a.org/", "http://me:secret@a.org/", "http://a.org\\@b.org/")),
        ("http://" + "a" * 9000, "url_refused"),
        *((text, "url_failed") for text in ("http://", "http:///a.png", "http:a.png", "http://example.org:99999/")),
        *((text, "url_failed") for text in ("http://example.org:0/", "https://example.org:00/a.png")),
        *((text, "url_failed") for text in ("http://exa\nmple.org/", "http://[::1/", "http://example.org/\x00")),
        *((text, "url_failed") for text in ("http://ex%61mple.org/", "http://a b/", "http://a%00b/")),
    ],
)
def test_what_is_not(text: str, code: str) -> None:
    with pytest.raises(ImageError) as caught:
        checked_url(text, None)
    assert caught.value.code == code
    assert "secret" not in caught.value.detail


ALLOWED = ("example.org", ".pictures.test")


@pytest.mark.parametrize(
    "host", ["example.org", "EXAMPLE.org.", "pictures.test", "a.pictures.test", "b.a.pictures.test"]
)
def test_hosts_that_are_allowed(host: str) -> None:
    assert checked_url(f"http://{host}/", ALLOWED)


@pytest.mark.parametrize(
    "host", ["a.example.org", "example.org.test", "badpictures.test", "127.0.0.1", "example.orga", "[::1]"]
)
def test_hosts_that_are_not(host: str) -> None:
    with pytest.raises(ImageError, match="not among those") as caught:
        checked_url(f"http://{host}/", ALLOWED)
    assert caught.value.code == "url_refused"


@pytest.mark.parametrize(
    ("place", "leads_to"),
    [
        ("b.png", "http://example.org/a/b.png"),
        ("/b.png", "http://example.org/b.png"),
        ("?x", "http://example.org/a/a.png?x"),
        ("//pictures.test/b.png", "http://pictures.test/b.png"),
        ("https://example.org/", "https://example.org/"),
    ],
)
def test_redirects(place: str, leads_to: str) -> None:
    assert checked_url(place, ALLOWED, base=httpx.URL("http://example.org/a/a.png")) == leads_to


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "ftp://example.org/", "//me@example.org/", "//elsewhere.test/"]
)
def test_redirects_are_refused_alike(place: str) -> None:
    with pytest.raises(ImageError, match="^url_refused: the redirect: "):
        checked_url(place, ALLOWED, base=httpx.URL("http://example.org/a/a.png"))
