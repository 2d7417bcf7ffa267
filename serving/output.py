"""Rows of captions as text for people or as JSON lines, to the terminal or to a file that is whole or absent."""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from models.errors import RequestError

Write = Callable[[Mapping[str, Any]], None]

# A name must not break its line or the terminal; what stands for itself stays readable.
_ESCAPES = {code: f"\\x{code:02x}" for code in [*range(32), 127]} | {
    ord("\\"): "\\\\",
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}


def text_line(row: Mapping[str, Any]) -> bytes:
    """``path<TAB>caption``, or ``path<TAB>caption<TAB>CLIPScore``; further captions after further tabs, and a last cell
    ``fallback`` where they are the concise ones that took the place of others.

    Control characters of the path are escaped.
    """
    cells = [escaped(row["file_name"])]
    for caption in row["captions"]:
        cells.append(caption["text"])
        if caption["clip_score"] is not None:
            cells.append(f"{caption['clip_score']:.3f}")
    if row["fallback"]:
        cells.append("fallback")
    return encoded("\t".join(cells) + "\n")


def encoded(text: str) -> bytes:
    """The bytes of a text with a file name; a half surrogate, which no file name has, as if UTF-8 had it."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def escaped(text: str) -> str:
    """The text with control characters escaped, so that it breaks neither lines nor the terminal."""
    return text.translate(_ESCAPES)


def json_line(row: Mapping[str, Any]) -> bytes:
    """One JSON object, ASCII only, so that every file name survives."""
    return json.dumps(row).encode("ascii") + b"\n"


def stdout() -> BinaryIO:
    """Standard output, for bytes.

    Raises:
        OSError: whoever started this closed it: a disk that fails, as it were.
    """
    if sys.stdout is None:
        raise OSError(errno.EBADF, "it is closed", "standard output")
    return sys.stdout.buffer


@contextmanager
def rows_to(out: Path | None, line: Callable[[Mapping[str, Any]], bytes]) -> Iterator[Write]:
    """A function that writes a row to stdout, or to ``out``, which appears when the block ends well.

    Raises:
        RequestError: ``invalid_request`` for a place that cannot be written, before anything is computed.
    """
    if out is None:
        yield _writer(stdout(), line)
        return
    if out.is_dir():
        raise RequestError("invalid_request", f"{str(out)!r} is a folder: name a file in it")
    target = Path(os.path.realpath(out))  # a link stays one
    unfinished = target.with_name(f".{os.getpid()}.limner-unfinished")
    try:
        file = unfinished.open("xb")
    except OSError as error:
        raise RequestError("invalid_request", f"{str(out)!r} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield _writer(file, line)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _writer(stream: BinaryIO, line: Callable[[Mapping[str, Any]], bytes]) -> Write:
    def write(row: Mapping[str, Any]) -> None:
        stream.write(line(row))
        stream.flush()

    return write
