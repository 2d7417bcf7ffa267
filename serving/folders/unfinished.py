"""The name of a file while it is not whole: hidden, short whatever the other is, and nobody else's."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUFFIX = ".limner-unfinished"


def unfinished(path: Path) -> Path:
    """A name beside ``path`` that no other process takes, on whatever machine: process ids repeat among containers."""
    return path.with_name(f".{secrets.token_hex(8)}{SUFFIX}")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name to write under in this block, whose end puts the file in place of ``path``; where that is a link, of what
    it leads to. If the block fails, all is as before."""
    target = Path(os.path.realpath(path))
    other = unfinished(target)
    try:
        yield other
        other.replace(target)
    finally:
        other.unlink(missing_ok=True)
