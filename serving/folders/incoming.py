"""What somebody writes to this process by and by: in lines, and the moments in which there is none."""

import io
import select
from collections.abc import Iterator
from typing import BinaryIO

LULL_S = 0.3
_BLOCK_BYTES = 1 << 16  # more than a buffered reader holds back: what it has is all taken at once


def as_they_come(file: BinaryIO, end: bytes) -> Iterator[bytes | None]:
    """Each piece of ``file`` that ends with ``end``, without it, as soon as it is there; None when none comes for
    ``LULL_S``, and again after each further one."""
    waiting = b""
    for block in _blocks(file):
        if block is None:
            yield None
            continue
        *whole, waiting = (waiting + block).split(end)
        yield from whole
    if waiting:
        yield waiting


def _blocks(file: BinaryIO) -> Iterator[bytes | None]:
    read = getattr(file, "read1", file.read)
    waits = _can_be_waited_for(file)
    while True:
        if waits and not select.select([file], [], [], LULL_S)[0]:  # a signal does not end it
            yield None
        elif block := read(_BLOCK_BYTES):
            yield block
        else:
            return


def _can_be_waited_for(file: BinaryIO) -> bool:
    """Whether the system knows it; what only lies in memory is all there."""
    try:
        file.fileno()
    except (io.UnsupportedOperation, OSError, ValueError):
        return False
    return True
