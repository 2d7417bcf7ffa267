"""The files below a folder, streamed: the names of a few directories in memory, in an order that does not change."""

import os
import stat
from collections import Counter
from collections.abc import Iterator

from serving.folders.ours import NOTHING, Ours
from serving.folders.pictures import Picture, named_like_a_picture
from serving.messages import Failure

_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini", "ehthumbs.db", "icon\r", "__macosx", "@eadir", "$recycle.bin"})


def walk(root: str, recursive: bool, skipped: Counter[str], ours: Ours = NOTHING) -> Iterator[Picture]:
    """What may be a picture below ``root``, each directory in order of its names' bytes.

    Hidden entries, litter of systems, sockets and the like, and linked folders are left out and counted in ``skipped``,
    by reason; what is of ``ours`` is left out without a word. A directory that cannot be listed is in the stream, to
    fail in its turn.
    """
    first = _entries(root, root, ours)
    if isinstance(first, Picture):
        yield first
        return
    way_down = [("", iter(first))]  # folders by name, and what of each is still to come; no recursion: it has a limit
    while way_down:
        inside, entries = way_down[-1]
        if (entry := next(entries, None)) is None:
            way_down.pop()
            continue
        found = _look_at(root, os.path.join(inside, entry), entry, recursive, skipped, ours)
        if isinstance(found, Picture):
            yield found
        elif found is not None:
            way_down.append((os.path.join(inside, entry), iter(found)))


def _look_at(
    root: str, name: str, entry: str, recursive: bool, skipped: Counter[str], ours: Ours
) -> Picture | list[str] | None:
    """What may be a picture; the entries of a folder to look into; None for what is left out."""
    path = os.path.join(root, name)
    if _is_ours(entry):
        return None
    if reason := litter(entry):
        skipped[reason] += 1
    elif os.path.isdir(path):
        if recursive and not os.path.islink(path):
            return _entries(path, name, ours)
        skipped["linked folder" if recursive else "folder"] += 1
    elif _is_special(path):
        skipped["not a regular file"] += 1
    else:
        return Picture(name, path, named_like_a_picture(entry))
    return None


def _entries(folder: str, name: str, ours: Ours) -> Picture | list[str]:
    try:
        entries = os.listdir(folder)
    except OSError as error:
        failure = Failure("unreadable", f"the folder {folder!r} cannot be listed: {error.strerror}")
        return Picture(name, folder, error=failure)
    if written := ours.among(folder, entries):
        entries = [entry for entry in entries if entry not in written]
    return sorted(entries, key=os.fsencode)


def _is_ours(entry: str) -> bool:
    """Whether it is a file that a run keeps beside its output, or was writing when it was killed."""
    return entry.startswith(".") and entry.endswith((".limner-journal", ".limner-unfinished", ".limner-run"))


def litter(entry: str) -> str | None:
    """Why a file or folder of this name is never a picture to caption; None if it may be one."""
    if entry.startswith("."):
        return "hidden"
    return "system file" if entry.lower() in _SYSTEM_FILES else None


def _is_special(path: str) -> bool:
    """Whether it is a socket, device or pipe; a broken link or one in a loop is not: it fails when it is opened."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
