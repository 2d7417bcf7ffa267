"""Connections for one fetch: a name is resolved once, its addresses are checked, and one of the checked is dialed."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Any

import httpcore

from models.errors import ImageError
from serving.fetching.addresses import IPAddress

Resolve = Callable[[str], Awaitable[Sequence[IPAddress]]]
"""The addresses of a host, by order of preference; an IP address stands for itself. Raises OSError."""

Dial = Callable[[IPAddress, int, float], Awaitable[httpcore.AsyncNetworkStream]]
"""A TCP connection to an address and a port within some seconds. Raises httpcore.ConnectError or ConnectTimeout."""

_CONNECT_S = 3.0
_MOST_DIALED = 4


class SystemResolver:
    """Asks the operating system, in threads of its own: a name server that does not answer holds up fetches only."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, "resolve")

    async def __call__(self, host: str) -> Sequence[IPAddress]:
        found = await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host)
        return tuple(dict.fromkeys(found))


def _look_up(host: str) -> list[IPAddress]:
    return [ip_address(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


async def dial(address: IPAddress, port: int, timeout_s: float) -> httpcore.AsyncNetworkStream:
    """A TCP connection; no name is looked up."""
    return await httpcore.AnyIOBackend().connect_tcp(str(address), port, timeout_s)


class CheckedDialer(httpcore.AsyncNetworkBackend):
    """What httpcore connects through. TLS still goes by the name of the host.

    A host with any address that may not be dialed is refused whole: which of its addresses is dialed must not depend on
    luck. ``aclose`` closes what was opened, also where httpcore was cancelled in the middle of a TLS handshake, which
    leaves its connection open.
    """

    def __init__(self, resolve: Resolve, dial: Dial, may_dial: Callable[[str, IPAddress], bool]) -> None:
        self._resolve = resolve
        self._dial = dial
        self._may_dial = may_dial
        self._opened: list[httpcore.AsyncNetworkStream] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Raises ImageError (``url_refused``, ``url_failed``) and what ``Dial`` raises."""
        fault: Exception = httpcore.ConnectError("no address")
        for address in (await self._checked(host))[:_MOST_DIALED]:
            try:
                stream = await self._dial(address, port, _CONNECT_S)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                fault = error
                continue
            self._opened.append(stream)
            return stream
        raise fault

    async def aclose(self) -> None:
        """Close every connection."""
        for stream in self._opened:
            await stream.aclose()

    async def _checked(self, host: str) -> Sequence[IPAddress]:
        try:
            addresses = await self._resolve(host)
        except (OSError, ValueError):  # ValueError: what cannot be a name, such as one with an empty label
            addresses = ()
        if not addresses:
            raise ImageError("url_failed", f"the host {host[:100]!r} has no address")
        if not all(self._may_dial(host, address) for address in addresses):
            # Which address it is stays here: it would tell of the network that the server is in.
            raise ImageError("url_refused", f"the host {host[:100]!r} is not on the public internet")
        return addresses
