"""A web of one machine: a server that misbehaves as told, names that lead to it, and nothing that leaves it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Network, ip_address
from typing import Any

import httpcore
import pytest

from models.errors import ImageError
from serving.args import Limits
from serving.fetching.addresses import IPAddress
from serving.fetching.fetcher import UrlFetcher
from tests.serving.support import png

LOOPBACK = (IPv4Network("127.0.0.0/8"),)

Answer = bytes | Callable[["Connection"], Awaitable[None]]
"""All that is sent, or what to do with the connection."""


def response(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """An answer as it should be; ``content_type="..."`` and so on are headers."""
    named = {"content-length": str(len(body)), **{key.replace("_", "-"): value for key, value in headers.items()}}
    lines = [f"HTTP/1.1 {status}", *(f"{key}: {value}" for key, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode("utf-8") + body


def redirect(to: str, status: int = 302) -> bytes:
    return response(status=f"{status} Elsewhere", location=to)


PICTURE = response(png(), content_type="image/png")


class Connection:
    """The server's end of one connection, whose request has been read."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Mapping[str, str] | None = None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.headers = headers or {}
        """Of the request, in lower case."""

    async def send(self, data: bytes) -> None:
        """Raises ConnectionError when the client has gone."""
        self._writer.write(data)
        await self._writer.drain()

    async def until_left(self) -> None:
        """Wait for the client to close the connection."""
        await self._reader.read()


class Web:
    """The server: what was asked of it, and how many connections it has."""

    def __init__(self, pages: Mapping[str, Answer]) -> None:
        self.pages = pages
        self.port = 0
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Path and headers of each request."""
        self.open = 0
        self.accepted = 0
        self.changed = asyncio.Condition()

    def url(self, path: str, host: str = "pictures.test", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    async def until(self, fits: Callable[["Web"], bool]) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(lambda: fits(self))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._count(1)
        try:
            with suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.close()
            await self._count(-1)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(greeting := self.pages.get("*"), bytes):  # does not wait for what is asked
            writer.write(greeting)
            await writer.drain()
            return
        if greeting is not None:
            await greeting(Connection(reader, writer))
            return
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = first.split(" ")[1]
        headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines if line}
        self.asked.append((path, headers))
        await self._count(0)
        answer = self.pages.get(path, response(status="404 Not Found"))
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
        else:
            await answer(Connection(reader, writer, headers))

    async def _count(self, change: int) -> None:
        async with self.changed:
            self.open += change
            self.accepted += change > 0
            self.changed.notify_all()


@asynccontextmanager
async def web(pages: Mapping[str, Answer], tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    """The server while the block runs; at its end every connection must have been left."""
    here = Web(pages)
    server = await asyncio.start_server(here.serve, "127.0.0.1", 0, ssl=tls)
    here.port = server.sockets[0].getsockname()[1]
    try:
        yield here
        await here.until(lambda web: web.open == 0)
    finally:
        server.close()


class Names:
    """A resolver: each host has its answers, one after the other, the last for ever; other names do not exist."""

    def __init__(self, **hosts: str | Sequence[str]) -> None:
        self._answers = {
            host.replace("_", "."): [answers] if isinstance(answers, str) else list(answers)
            for host, answers in hosts.items()
        }
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[IPAddress]:
        self.asked.append(host)
        with suppress(ValueError):
            return [ip_address(host)]
        answers = self._answers.get(host)
        if answers is None:
            raise OSError("no such name")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ip_address(address) for address in answer.split()]


class NoDial:
    """Dials nothing and keeps what it was to dial."""

    def __init__(self) -> None:
        self.dialed: list[tuple[str, int]] = []

    async def __call__(self, address: IPAddress, port: int, timeout_s: float) -> httpcore.AsyncNetworkStream:
        self.dialed.append((str(address), port))
        raise httpcore.ConnectError("not in tests")


def local_fetcher(names: Names | None = None, tls: ssl.SSLContext | None = None, **limits: Any) -> UrlFetcher:
    """A fetcher that may dial this machine, and whose names are those given; ``pictures.test`` is this machine."""
    return UrlFetcher(
        Limits(urls=True, **limits),
        resolve=names or Names(pictures_test="127.0.0.1"),
        tls=tls,
        also_allowed=LOOPBACK,
    )


def nothing(_taken: int) -> None: ...


def fetch(pages: Mapping[str, Answer], path: str = "/", names: Names | None = None, **limits: Any) -> tuple[bytes, Web]:
    """What is fetched from the path, and the server afterwards; ``PORT`` in a page is the server's."""

    async def whole() -> tuple[bytes, Web]:
        async with web(pages) as server:
            server.pages = {
                key: value.replace(b"PORT", str(server.port).encode()) if isinstance(value, bytes) else value
                for key, value in pages.items()
            }
            return await local_fetcher(names, **limits).fetch(server.url(path), nothing), server

    return asyncio.run(whole())


def failure(pages: Mapping[str, Answer], code: str = "url_failed", **options: Any) -> str:
    """The detail of what ``fetch`` raises; by then the server has seen every connection end."""
    with pytest.raises(ImageError) as caught:
        fetch(pages, **options)
    assert caught.value.code == code, caught.value
    assert "127.0.0.1" not in caught.value.detail
    return caught.value.detail


async def endless(head: bytes, piece: bytes, connection: Connection) -> None:
    await connection.send(head)
    while True:
        await connection.send(piece)


async def silent(connection: Connection) -> None:
    await connection.until_left()
