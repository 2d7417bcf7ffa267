"""Changes of files that others read meanwhile, and that a crash may cut short. Loads no torch."""

import ctypes
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_READ, _ENTER = 0o444, 0o111


def exchange(one: Path, other: Path) -> bool:
    """Give each the other's name, in one move; false where the system or the file system cannot do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


@contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Hold a lock on a folder, for which others wait, while the block runs; the end of the process frees it too."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system without locks: two at once may refuse each other, no more
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def shared_and_synced(folder: Path, as_folder: Path) -> None:
    """Let those read a folder and all in it who may read ``as_folder``, and have it on the disk."""
    readers = as_folder.stat().st_mode & _READ
    for root, _, names in os.walk(folder):
        os.chmod(root, os.stat(root).st_mode | readers | readers >> 2 & _ENTER)
        for name in names:
            path = Path(root, name)
            path.chmod(path.stat().st_mode | readers)
            sync(path)
        sync(Path(root))


def sync(path: Path) -> None:
    """Return when a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
