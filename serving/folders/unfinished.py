"""The name of a file while it is not whole: hidden, short whatever the other is, and nobody else's.

The file is locked meanwhile: so what killed runs left is told from what another run is writing.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

SUFFIX = ".limner-unfinished"
_NAME = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(SUFFIX)}")


@contextmanager
def drafted(path: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new file, under the name that it has in this block and open to write, whose end puts it in place of ``path``.
    If the block fails, all is as before. The lock lasts as long as the file is open."""
    other, file = _locked_beside(path)
    try:
        with file:
            yield other, file
            file.flush()
            other.replace(path)  # before the lock ends: nobody may take it for a leftover
    finally:
        other.unlink(missing_ok=True)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name to write under in this block, whose end puts the file in place of ``path``; where that is a link, of what
    it leads to. If the block fails, all is as before. What killed runs left beside it goes, too."""
    target = Path(os.path.realpath(path))
    with drafted(target) as (other, _):
        yield other
    sweep(target.parent)


def sweep(folder: Path) -> None:
    """Remove the unfinished files that nobody writes any more; what cannot be removed stays."""
    with suppress(OSError):
        for name in filter(_NAME.fullmatch, os.listdir(folder)):
            with suppress(OSError):
                _remove_unless_locked(folder / name)


def _remove_unless_locked(path: Path) -> None:
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)  # NFS locks no file that is open to read only
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(file)


def _locked_beside(path: Path) -> tuple[Path, IO[bytes]]:
    """A new file under a name that no other process takes, on whatever machine: process ids repeat among containers."""
    while True:
        other = path.with_name(f".{secrets.token_hex(8)}{SUFFIX}")
        file = other.open("xb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(other, file):
                return other, file
        except BlockingIOError:
            pass  # another run sweeps, and met it before it had its lock
        except OSError:  # a file system without locks: nobody can sweep there
            return other, file
        file.close()
        other.unlink(missing_ok=True)


def _is_there(path: Path, file: IO[Any]) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
