"""Connections that end in the ingress replica, without Ray's HTTP proxy between: the short way on one machine."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp

from serving.head_limits import HeadLimitsProtocol
from serving.middleware.edge_guard import EdgeGuard

_KEEP_ALIVE_S = 90
"""As Ray's proxy."""
_BACKLOG = 2048
_GRACE_S = 2
"""For answers under way when the replica ends; a server in good order has drained before."""


@asynccontextmanager
async def listening(app: ASGIApp, host: str, port: int) -> AsyncIterator[None]:
    """Answers by ``app`` on ``host`` and ``port`` while the block runs.

    Raises:
        OSError: The address cannot be listened on.
    """
    server = uvicorn.Server(
        uvicorn.Config(
            EdgeGuard(app),
            http=HeadLimitsProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
    )
    with _bound(host, port) as bound:
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            yield
        finally:
            server.should_exit = True
            await serving


def _bound(host: str, port: int) -> socket.socket:
    family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    bound = socket.socket(family, kind)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of one that crashed may linger
        bound.bind(address)
        bound.listen(_BACKLOG)  # from here on connections wait rather than fail
    except OSError:
        bound.close()
        raise
    return bound
