"""A connection of uvicorn that is closed when the head of a request is late: uvicorn itself would wait for ever."""

from asyncio import TimerHandle, Transport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_TIMEOUT_S = 20.0


class HeadTimeoutProtocol(HttpToolsProtocol):
    """Gives every head ``HEAD_TIMEOUT_S``: the first from the connection on, later ones from their first byte. Between
    them is the keep-alive time."""

    _late: TimerHandle | None = None

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

    def on_headers_complete(self) -> None:
        self._head_came()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, self._close)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
