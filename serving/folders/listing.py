"""The files below a folder, streamed: one directory in memory at a time, in an order that does not change."""

import os
import stat
from collections import Counter
from collections.abc import Iterator

from serving.folders.pictures import Picture, named_like_a_picture
from serving.messages import Failure

_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini", "ehthumbs.db", "icon\r", "__macosx", "@eadir", "$recycle.bin"})


def walk(root: str, recursive: bool, skipped: Counter[str]) -> Iterator[Picture]:
    """What may be a picture below ``root``, each directory in order of its names' bytes.

    Hidden entries, litter of systems, sockets and the like, and linked folders are left out and counted in ``skipped``,
    by reason. A directory that cannot be listed is in the stream, to fail in its turn.
    """
    yield from _below(root, "", recursive, skipped)


def _below(root: str, inside: str, recursive: bool, skipped: Counter[str]) -> Iterator[Picture]:
    where = os.path.join(root, inside)
    try:
        names = sorted(os.listdir(where), key=os.fsencode)
    except OSError as error:
        name = inside or root
        failure = Failure("unreadable", f"the folder {where!r} cannot be listed: {error.strerror}")
        yield Picture(name, where, error=failure)
        return
    for entry in names:
        if _is_ours(entry):
            continue
        name, path = os.path.join(inside, entry), os.path.join(where, entry)
        if reason := _litter(entry):
            skipped[reason] += 1
        elif _is_folder(path):
            if not recursive:
                skipped["folder"] += 1
            elif os.path.islink(path):
                skipped["linked folder"] += 1
            else:
                yield from _below(root, name, recursive, skipped)
        elif _is_special(path):
            skipped["not a regular file"] += 1
        else:
            yield Picture(name, path, named_like_a_picture(entry))


def _is_ours(entry: str) -> bool:
    """Whether it is a file that a run keeps beside its output, or was writing when it was killed."""
    return entry.startswith(".") and entry.endswith((".limner-journal", ".limner-unfinished", ".limner-run"))


def _litter(entry: str) -> str | None:
    if entry.startswith("."):
        return "hidden"
    return "system file" if entry.lower() in _SYSTEM_FILES else None


def _is_folder(path: str) -> bool:
    try:
        return os.path.isdir(path)
    except ValueError:
        return False


def _is_special(path: str) -> bool:
    """Whether it is a socket, device or pipe; a broken link or one in a loop is not: it fails when it is opened."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
