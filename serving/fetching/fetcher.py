"""One picture from the web: redirects, deadline and size bounded, every fault an ImageError. Loads no torch."""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import httpcore
import httpx

from models import __version__
from models.errors import ImageError
from serving.args import Limits
from serving.fetching.addresses import IPAddress, IPNetwork, is_private, is_public
from serving.fetching.dialer import CheckedDialer, Dial, Resolve, SystemResolver, dial
from serving.fetching.hosts import checked_url, host_of

_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PAGE_TYPES = ("text/html", "application/xhtml+xml")
_PAGE_STARTS = (b"<!doctype html", b"<html")
_HEADERS = (
    ("User-Agent", f"limner/{__version__} (image captioning server)"),  # without one, many hosts answer 403
    ("Accept", "image/jpeg, image/png, image/webp, image/*;q=0.8, */*;q=0.1"),
    ("Accept-Encoding", "identity"),
    ("Connection", "close"),
)


class UrlFetcher:
    """Fetches over HTTP/1.1, each hop on a connection of its own: no proxies, cookies, credentials or environment.

    ``also_allowed`` are networks that may be dialed though they are not public; for tests, and in Python only.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        resolve: Resolve | None = None,
        dial: Dial = dial,
        tls: ssl.SSLContext | None = None,
        also_allowed: Sequence[IPNetwork] = (),
    ) -> None:
        self._timeout_s = limits.url_timeout_s
        self._max_bytes = limits.max_image_bytes
        self._internal_hosts = limits.url_internal_hosts or ()
        self._hosts = (*limits.url_hosts, *self._internal_hosts) if limits.url_hosts is not None else None
        self._resolve = resolve or SystemResolver(limits.max_url_fetches)
        self._dial = dial
        self._tls = tls or httpx.create_ssl_context(trust_env=False)
        self._also_allowed = also_allowed

    async def fetch(self, url: str, take: Callable[[int], None]) -> bytes:
        """What the URL gives, as it is. ``take`` is told of every piece how many bytes it has, and may raise.

        Raises:
            ImageError: ``url_refused`` for what is not fetched by rule, ``url_failed`` for what went wrong,
                ``too_large``.
        """
        at = checked_url(url, self._hosts)
        try:
            async with asyncio.timeout(self._timeout_s):
                for _ in range(_MOST_REDIRECTS + 1):
                    with _told(at):
                        found = await self._hop(at, take)
                    if isinstance(found, bytes):
                        return found
                    at = checked_url(found, self._hosts, base=at)
        except TimeoutError:
            detail = f"{host_of(at)[:100]!r} did not send the picture within {self._timeout_s:g} s"
            raise ImageError("url_failed", detail) from None
        raise ImageError("url_failed", f"more than {_MOST_REDIRECTS} redirects, the last to {host_of(at)[:100]!r}")

    async def _hop(self, url: httpx.URL, take: Callable[[int], None]) -> bytes | str:
        """The body of the answer, or where else to look."""
        target = httpcore.URL(scheme=url.raw_scheme, host=host_of(url), port=url.port, target=url.raw_path)
        dialer = CheckedDialer(self._resolve, self._dial, self._may_dial)
        connection = httpcore.AsyncHTTPConnection(target.origin, self._tls, network_backend=dialer)
        headers = (("Host", url.netloc.decode("ascii")), *_HEADERS)
        try:
            async with connection, connection.stream("GET", target, headers=headers) as response:
                place = _header(response, b"location")
                if response.status in _REDIRECTS and place:
                    return place
                _check_head(response, url, self._max_bytes)
                body = await self._body(response, take)
        finally:
            await dialer.aclose()
        _check_no_page(response, body, url)
        return body

    async def _body(self, response: httpcore.Response, take: Callable[[int], None]) -> bytes:
        body = bytearray()
        async for piece in response.aiter_stream():
            body += piece
            _check_size(len(body), self._max_bytes)
            take(len(piece))
            await asyncio.sleep(0)  # thousands of tiny chunks arrive in one read: others have their turn between them
        return bytes(body)

    def _may_dial(self, host: str, address: IPAddress) -> bool:
        if host in self._internal_hosts and is_private(address):
            return True
        return is_public(address) or any(address in network for network in self._also_allowed)


def _check_head(response: httpcore.Response, url: httpx.URL, max_bytes: int) -> None:
    if response.status != 200:
        raise ImageError("url_failed", f"{host_of(url)[:100]!r} answered {response.status} instead of a picture")
    if (encoding := _header(response, b"content-encoding").lower()) not in ("", "identity"):
        detail = f"{host_of(url)[:100]!r} sent the picture compressed ({encoding[:20]!r}) although asked not to"
        raise ImageError("url_failed", detail)
    if (declared := _header(response, b"content-length")).isdecimal():
        _check_size(int(declared), max_bytes)


def _check_size(found_bytes: int, max_bytes: int) -> None:
    if found_bytes > max_bytes:
        raise ImageError("too_large", f"the file at this url has more than {max_bytes} bytes")


def _check_no_page(response: httpcore.Response, body: bytes, url: httpx.URL) -> None:
    """Content decides, but where it is a web page that is the better thing to say."""
    start = body[:1024].lstrip().lower()
    kind = _header(response, b"content-type").lower()
    if start.startswith(_PAGE_STARTS) or (kind.startswith(_PAGE_TYPES) and start.startswith(b"<")):
        detail = f"{host_of(url)[:100]!r} answered 200 with a web page: give the address of the picture itself"
        raise ImageError("url_failed", detail)


def _header(response: httpcore.Response, name: bytes) -> str:
    found = (value for key, value in response.headers if key.lower() == name)
    return next(found, b"").decode("utf-8", "replace").strip()


@contextmanager
def _told(url: httpx.URL) -> Iterator[None]:
    """Faults of network and protocol as an ImageError; nothing of what the other side sent is repeated."""
    host = repr(host_of(url)[:100])
    try:
        yield
    except (httpcore.ConnectError, httpcore.ConnectTimeout, ssl.SSLError) as error:
        if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
            detail = f"no secure connection to {host}: its certificate or its TLS is not accepted"
        else:
            detail = f"no connection to {host} could be made"
        raise ImageError("url_failed", detail) from error
    except httpcore.ProtocolError as error:
        raise ImageError("url_failed", f"{host} broke off or does not speak HTTP as it should") from error
    except (httpcore.NetworkError, httpcore.TimeoutException, OSError) as error:
        raise ImageError("url_failed", f"the connection to {host} broke") from error
