"""Connections of uvicorn with bounds on the heads of requests: by itself it waits for ever and keeps all that comes."""

from asyncio import TimerHandle, Transport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_TIMEOUT_S = 20.0
MAX_HEAD_BYTES = 64 * 1024


class HeadLimitsProtocol(HttpToolsProtocol):
    """Closes the connection when a head takes longer than ``HEAD_TIMEOUT_S`` - the first from the connection on, later
    ones from their first byte, since the time between them is the keep-alive time - and answers 400 to one of more than
    ``MAX_HEAD_BYTES``."""

    _late: TimerHandle | None = None
    _head_bytes = 0
    """Of chunks that did not complete a head."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._late is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        super().data_received(data)
        if self._late is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def on_headers_complete(self) -> None:
        self._head_came()
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")  # which uvicorn answers as any head that cannot be read
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, self._close)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None
        self._head_bytes = 0

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
