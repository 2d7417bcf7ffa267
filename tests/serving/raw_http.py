"""HTTP as bytes, for what no client library would send."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from tests.serving.conftest import free_port


@dataclass(frozen=True)
class Answer:
    """One answer of a connection."""

    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """A connection to a server, read answer by answer."""

    def __init__(self, url: str, timeout_s: float = 30) -> None:
        address = urlsplit(url)
        self.socket = socket.create_connection((address.hostname or "", address.port or 0), timeout_s)
        self._file = self.socket.makefile("rb")

    def send(self, *parts: bytes) -> "Connection":
        """The bytes, as far as the server takes them."""
        for part in parts:
            self.socket.sendall(part)
        return self

    def answer(self) -> Answer:
        """The next one; interim ones (100) are answers, too."""
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            assert name.lower() not in headers, line
            headers[name.lower()] = value.strip()
        return Answer(status, headers, self._file.read(int(headers.get("content-length", 0))))

    def ended(self) -> bool:
        """Whether the server ends the connection, without another byte."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    connection = Connection(url)
    try:
        yield connection
    finally:
        connection.close()


def ask(url: str, *parts: bytes) -> Answer:
    """The first answer on a connection of its own."""
    with connected(url) as connection:
        return connection.send(*parts).answer()


def post(path: str, body: bytes, *headers: bytes, content_type: bytes = b"image/png") -> bytes:
    """A whole POST."""
    fields = (b"host: x", b"content-type: " + content_type, b"content-length: %d" % len(body), *headers)
    return b"POST %s HTTP/1.1\r\n" % path.encode() + b"\r\n".join(fields) + b"\r\n\r\n" + body


@contextmanager
def served(app: Any, **options: Any) -> Iterator[str]:
    """The address of an ASGI application behind uvicorn, in a thread."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical", ws="none", **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    give_up = time.monotonic() + 30
    while not server.started and time.monotonic() < give_up:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)
