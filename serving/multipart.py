"""multipart/form-data that is already in memory, as parts of bytes.

Starlette's own form reader tells files from fields by ``filename``, which RFC 5987 names and some clients lack, decodes
what it takes for fields, and accepts a body that ends early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from models.errors import RequestError

if TYPE_CHECKING:  # not there at run time
    from python_multipart.multipart import MultipartCallbacks


@dataclass(frozen=True)
class Part:
    """One part of a form."""

    name: str
    data: bytes


def parse_multipart(content_type: str, body: bytes, *, max_parts: int) -> list[Part]:
    """The parts of a whole body, in order.

    Raises:
        RequestError: ``malformed_body``, also for a part without a name; ``invalid_request`` for too many parts.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise _malformed("its content type names no boundary")
    collector = _Collector(max_parts)
    try:
        parser = MultipartParser(boundary, collector.callbacks)
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise _malformed(str(error)) from None
    if not collector.ended:  # the parser would take what arrived for the whole
        raise _malformed("it ends before its closing boundary")
    return collector.parts


class _Collector:
    """Builds the parts from the parser's events."""

    def __init__(self, max_parts: int) -> None:
        self.parts: list[Part] = []
        self.ended = False
        self._max_parts = max_parts
        self._header, self._value = bytearray(), bytearray()
        self._disposition = b""
        self._data = bytearray()
        self.callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header_end,
            "on_part_data": lambda data, start, end: self._data.extend(data[start:end]),
            "on_part_end": self._part_end,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) == self._max_parts:
            raise RequestError("invalid_request", f"the form has more than {self._max_parts} parts")
        self._disposition = b""
        self._data = bytearray()

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def _part_end(self) -> None:
        name = parse_options_header(self._disposition)[1].get(b"name")
        if name is None:
            raise _malformed("a part has no name in its Content-Disposition")
        self.parts.append(Part(name.decode("utf-8", "replace"), bytes(self._data)))

    def _end(self) -> None:
        self.ended = True


def _malformed(why: str) -> RequestError:
    return RequestError("malformed_body", f"the multipart body cannot be read: {why}")
