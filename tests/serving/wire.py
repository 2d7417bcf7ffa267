"""A client that costs its machine little, so that load tests measure the server: one connection for each request."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    """What is sent. ``headers`` are added to those that every request needs."""

    path: str
    body: bytes = b""
    content_type: str = ""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, path: str, body: Any, **headers: str) -> "Request":
        return cls(path, json.dumps(body).encode(), "application/json", headers=headers)

    def head(self, announced: int | None = None) -> bytes:
        """The head, with the length of the body or another one."""
        length = len(self.body) if announced is None else announced
        own = {"host": "x", "connection": "close", "content-length": str(length), **self.headers}
        if self.content_type:
            own["content-type"] = self.content_type
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """In lower case."""
    body: bytes
    took_s: float

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(url: str, request: Request, *, within_s: float = 60) -> Reply:
    """The answer; raises ``ConnectionError`` where there is none, and ``TimeoutError``."""
    began = time.perf_counter()
    async with asyncio.timeout(within_s):
        reader, writer = await connect(url)
        try:
            writer.write(request.head() + request.body)
            try:
                await writer.drain()
            except ConnectionError:  # answered before all was sent: the answer may be there all the same
                pass
            answer = await reader.read()
        finally:
            writer.transport.abort()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    if not status.startswith("HTTP/"):
        raise ConnectionResetError("closed without an answer")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return Reply(int(status.split()[1]), headers, body, time.perf_counter() - began)


async def leave(url: str, request: Request, *, sent: int | None = None, after_s: float = 0.0) -> None:
    """Send the head and ``sent`` bytes of the body (all, when None), then hang up."""
    _, writer = await connect(url)
    try:
        writer.write(request.head() + request.body[:sent])
        await writer.drain()
        await asyncio.sleep(after_s)
    finally:
        writer.transport.abort()


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A new connection to the server at ``url``."""
    address = urlsplit(url)
    return await asyncio.open_connection(address.hostname, address.port)
