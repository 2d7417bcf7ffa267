"""Where connections of clients end: what Ray must not take from them, and the end of those whose body is refused."""

import asyncio

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.request_ids import HEADER, usable_id

# Ray obeys these: a client could pick its time limit, hide that it left, or make the proxy search for a model.
_FOR_RAY_ALONE = frozenset(
    {b"x-request-timeout-seconds", b"x-request-disconnect-disabled", b"serve-multiplexed-model-id", b"x-session-id"}
)
_LINGER_S = 2.0
_LINGER_BYTES = 64 << 20


class EdgeGuard:
    """Runs in Ray's proxy before all of Ray, or in the listener. The proxy sends the request id back as it came and
    fails where it is not UTF-8: here it is replaced by what limner would use.

    An answer that comes before the whole body closes its connection: the rest is thrown away for a while, so that a
    client that is still sending can read the answer, and then not read at all.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["headers"] = _cleaned(scope["headers"])
        body = _Body(receive)
        if not _has_body(scope["headers"]):
            body.end()

        async def lingering(message: Message) -> None:
            if message["type"] == "http.response.start" and not body.complete:
                body.refused = True
                MutableHeaders(scope=message)["connection"] = "close"
            if body.refused and message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await body.swallow()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        await self._app(scope, body.receive, lingering)


class _Body:
    """The body of one request on its way; once it is refused, nothing of it is passed on."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = asyncio.Event()
        self._thrown_bytes = 0
        self.refused = False

    @property
    def complete(self) -> bool:
        """Whether all of it came, or the client left."""
        return self._ended.is_set()

    def end(self) -> None:
        """Nothing more comes."""
        self._ended.set()

    async def receive(self) -> Message:
        while True:
            message = await self._receive()
            if message["type"] != "http.request" or not message.get("more_body", False):
                self._ended.set()
            if not self.refused or self._ended.is_set():
                return message
            self._thrown_bytes += len(message.get("body", b""))
            if self._thrown_bytes > _LINGER_BYTES:
                self._ended.set()

    async def swallow(self) -> None:
        """Wait for the end of the body, or until it takes too long. Whoever reads it still throws it away."""
        reading = asyncio.ensure_future(self._read_on())
        try:
            async with asyncio.timeout(_LINGER_S):
                await self._ended.wait()
        except TimeoutError:
            pass
        finally:
            reading.cancel()

    async def _read_on(self) -> None:
        while not self.complete:
            await self.receive()


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether anything follows the head: routes do not read bodies that are not there."""
    found = dict(headers)
    return b"transfer-encoding" in found or found.get(b"content-length", b"0").strip(b"0") != b""


def _cleaned(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name.replace(b"_", b"-") not in _FOR_RAY_ALONE]
    given = [value for name, value in kept if name == HEADER.encode()]
    request_id = usable_id(given[0].decode("latin-1") if len(given) == 1 else "")
    return [(name, value) for name, value in kept if name != HEADER.encode()] + [(HEADER.encode(), request_id.encode())]
