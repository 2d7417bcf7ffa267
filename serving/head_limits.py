"""Connections of uvicorn with bounds on the heads of requests: by itself it waits for ever and keeps all that comes."""

from asyncio import TimerHandle, Transport

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_TIMEOUT_S = 20.0
MAX_HEAD_BYTES = 64 * 1024
_UNREADABLE = "Invalid HTTP request received."
_TOO_LARGE = "The head of the request is too large."


class HeadLimitsProtocol(HttpToolsProtocol):
    """Closes the connection when a head takes longer than ``HEAD_TIMEOUT_S`` - the first from the connection on, later
    ones from their first byte, since the time between them is the keep-alive time - and answers 400 to one of more than
    ``MAX_HEAD_BYTES`` or that cannot be read, after the answers to what came before it.

    Offers of another protocol (``Upgrade``) are not taken up: the request is what it is without them.
    """

    _late: TimerHandle | None = None
    _head_bytes = 0
    """Of chunks that did not complete a head."""
    _begun_in_chunk = False
    """Whether a head began after other bytes of the chunk, which then says nothing of its size."""
    _upgrading = False
    """Whether the parser stands at the end of a head that offers another protocol."""
    _answering: RequestResponseCycle | None = None
    _last_words: str | None = None
    """What is said before the connection closes, once what came before is answered; empty: nothing."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        if self._answering is not None:  # uvicorn tells the last request alone, which may wait behind others
            self._answering.disconnected = True
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._last_words is not None:
            return
        self._unset_keepalive_if_required()
        if self._late is None and self._answered():
            self._expect_head()
        self._begun_in_chunk = False
        self._feed(data)
        if self._late is not None and not self._begun_in_chunk:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._late is None:  # behind other bytes
            self._begun_in_chunk = True
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_came()
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")  # which uvicorn answers as any head that cannot be read
        if self.parser.should_upgrade():
            self._upgrading = True
        else:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._upgrading:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._last_words is not None and self._answered():
            self._say_last_words()

    def send_400_response(self, msg: str) -> None:
        self._leave(msg)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            self._go_on_without_upgrade(data[stopped.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response(_UNREADABLE)

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Begin the message anew: this parser takes all that follows for another protocol."""
        self._upgrading = False
        method = self.parser.get_method()
        if method == b"CONNECT":  # its head needs no offer for that
            self.send_400_response(_UNREADABLE)
            return
        version = self.parser.get_http_version().encode()
        kept = [name + b": " + value + b"\r\n" for name, value in self.headers if name != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self._feed(b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, b"".join(kept)) + rest)

    def _answered(self) -> bool:
        """Whether nothing that came is without its answer."""
        return not self.pipeline and (self._answering is None or self._answering.response_complete)

    def _leave(self, words: str) -> None:
        """Close the connection, with these words as the last answer, as soon as what came before is answered."""
        if self._last_words is not None or self.transport.is_closing():
            return
        self._last_words = words
        self._head_came()
        unfinished = self.cycle if self.cycle is not None and self.cycle.more_body else None
        if self.pipeline and unfinished is not None:  # what is broken is the body of one that is not begun
            self.pipeline.popleft()
            unfinished = None
        if self._answered() or unfinished is not None:
            self._say_last_words()
        else:
            self.flow.pause_reading()

    def _say_last_words(self) -> None:
        assert self._last_words is not None
        if self.transport.is_closing():
            return
        if self._last_words:
            super().send_400_response(self._last_words)
        else:
            self.transport.close()

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, self._leave, "")

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = None
        self._head_bytes = 0
