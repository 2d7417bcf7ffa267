"""TLS, which goes by the name of the host though an address is dialed; connections end with their fetch."""

import asyncio
import ssl

import pytest
import trustme

from models.errors import ImageError
from tests.serving.fetching.support import (
    PICTURE,
    local_fetcher,
    nothing,
    silent,
    web,
)
from tests.serving.support import png

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
        async with web({"*": silent}) as server:
            with pytest.raises(ImageError, match="within 0.5 s"):
                await local_fetcher(url_timeout_s=0.5).fetch(server.url("/", scheme="https"), nothing)
            await server.until(lambda web: web.accepted == 1 and web.open == 0)

    asyncio.run(whole())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_cancelling_closes_the_connection(scheme: str) -> None:
    async def whole() -> None:
        async with web({"*": silent}) as server:
            fetching = asyncio.ensure_future(local_fetcher().fetch(server.url("/", scheme=scheme), nothing))
            await server.until(lambda web: web.open == 1)
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
            await server.until(lambda web: web.open == 0)

    asyncio.run(whole())
