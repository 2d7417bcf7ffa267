"""Where pictures come from: files, folders, WebDataset archives, lists, and standard input, streamed."""

import json
import os
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Self

from models.errors import RequestError
from models.images import DEFAULT_LIMITS
from serving.folders.incoming import as_they_come
from serving.folders.listing import litter, walk
from serving.folders.ours import NOTHING, Ours
from serving.folders.pictures import ARCHIVES, Coming, Picture, is_archive, named_like_a_picture
from serving.messages import Failure

STDIN = "-"
_MOST_HELD = 16 << 20  # bytes of an archive whose first pictures are looked at in advance
_OF_HEADERS = frozenset(
    {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
)
_MOST_OF_A_HEADER = 1 << 18
_KEYS = ("file_name", "path", "image")


@dataclass
class Sources:
    """The pictures that some paths of a command line lead to."""

    paths: Sequence[str]
    recursive: bool = False
    null: bool = False
    """Whether paths read from standard input end with NUL instead of a line break."""
    skipped: Counter[str] = field(default_factory=Counter)
    """What was left out so far, by reason."""
    ours: Ours = NOTHING
    """Files of earlier runs in these folders."""
    _first: list[Coming] = field(default_factory=list, init=False, repr=False)
    _rest: Iterator[Coming] | None = field(default=None, init=False, repr=False)
    """What follows the first ones, once somebody has looked at those."""

    def __iter__(self) -> Iterator[Picture]:
        """Every picture, or what was named and is none: it fails in its turn.

        With several paths, those from within a path are called ``PATH/NAME``: two folders may hold equal names.
        """
        return (picture for picture in self.coming() if picture is not None)

    def coming(self) -> Iterator[Coming]:
        """The same, with a None whenever standard input has nothing for a moment."""
        first, rest = self._first, self._rest
        self._first, self._rest = [], None
        return self._look() if rest is None else chain(first, rest)

    def _peek(self, number: int) -> list[Coming]:
        """The first pictures, ``number`` of them if there are so many. Whoever goes through all afterwards is given
        them from here: to list a folder takes a minute where it is large and far away."""
        if self._rest is None:
            self._first, self._rest = [], self._look()
        self._first += islice(self._rest, max(number - len(self._first), 0))
        return self._first[:number]

    def _look(self) -> Iterator[Coming]:
        for path in self.paths:
            if path == STDIN:
                yield from _lines(as_they_come(sys.stdin.buffer, b"\0" if self.null else b"\n"), "", unix=self.null)
                continue
            within = self._within(path)
            if within is None:
                yield Picture(path, path)
            elif len(self.paths) == 1:
                yield from within
            else:
                yield from (replace(picture, name=os.path.join(path, picture.name)) for picture in within)

    @property
    def root(self) -> str | None:
        """What the names of the pictures are relative to; None where they are absolute."""
        path = self.paths[0]
        if len(self.paths) == 1:
            if os.path.isdir(path) or is_archive(path):
                return path
            if path.lower().endswith(tuple(_BY_SUFFIX)) and os.path.isfile(path):
                return os.path.dirname(path) or "."
        return None if all(map(os.path.isabs, self.paths)) else "."

    @property
    def can_be_counted(self) -> bool:
        """Whether the pictures can be listed twice at little cost, to count them."""
        return not any(path == STDIN or is_archive(path) for path in self.paths)

    def counted_apart(self) -> "Sources":
        """The same with a count of its own of what is left out."""
        return Sources(self.paths, self.recursive, self.null, ours=self.ours)

    def check(self) -> None:
        """Raise ``nothing`` where that can be said without opening a picture; refuse standard input that is closed."""
        if STDIN in self.paths:
            if sys.stdin is None:
                raise RequestError("invalid_request", f"{STDIN!r} is standard input, which is closed: give it a list")
        elif not any(map(_may_be_there, self.paths)) or not self._peek(1):
            raise self.nothing()

    def more_than(self, pictures: int) -> bool:
        """Whether there are more; yes where that cannot be known yet."""
        if STDIN in self.paths or any(is_archive(path) and os.path.getsize(path) > _MOST_HELD for path in self.paths):
            return True
        return len(self._peek(pictures + 1)) > pictures

    def nothing(self) -> RequestError:
        """The refusal of paths that lead to no picture."""
        missing = [path for path in self.paths if path != STDIN and not _may_be_there(path)]
        if missing:
            return RequestError("invalid_request", f"{missing[0]!r} does not exist")
        where = ", ".join(map(repr, self.paths))
        left_out = ", ".join(f"{number} {reason}" for reason, number in sorted(self.skipped.items()))
        hint = " (-r looks into subfolders too)" if self.skipped["folder"] else ""
        hint += " (archives are read where they are named themselves)" if self.skipped["archive"] else ""
        return RequestError(
            "invalid_request", f"no pictures in {where}{hint}{f'; left out: {left_out}' if left_out else ''}"
        )

    def _within(self, path: str) -> Iterator[Picture] | None:
        if os.path.isdir(path):
            return walk(path, self.recursive, self.skipped, self.ours)
        for suffix, read in _BY_SUFFIX.items():
            if path.lower().endswith(suffix) and os.path.isfile(path):
                return read(path, self.skipped)
        return None


def _archive(path: str, skipped: Counter[str]) -> Iterator[Picture]:
    """Members of a tar in its order; those that are not named like pictures (captions, classes) are left out."""
    try:
        with tarfile.open(path, "r|*", tarinfo=_Member) as archive:
            for member in archive:
                parts = (part for part in PurePosixPath(member.name).parts if part != "..")
                if reason := next(filter(None, map(litter, parts)), None):
                    skipped[reason] += 1
                elif not member.isfile() or not named_like_a_picture(member.name):
                    skipped["other member"] += 1
                elif member.size > DEFAULT_LIMITS.max_bytes:
                    detail = f"{member.size} bytes; at most {DEFAULT_LIMITS.max_bytes} are accepted"
                    failure = Failure("too_large", f"{member.name!r} in {path!r}: {detail}")
                    yield Picture(member.name, path, in_archive=True, error=failure)
                else:
                    file = archive.extractfile(member)
                    yield Picture(member.name, path, in_archive=True, data=file.read() if file else b"")
                archive.members.clear()  # type: ignore[attr-defined]  # else all headers stay in memory
    except (
        tarfile.TarError,
        OSError,
        EOFError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:  # odd headers, too
        failure = Failure("unreadable", f"the archive {path!r} is cut short or damaged ({error})")
        yield Picture(path, path, error=failure)


class _Member(tarfile.TarInfo):
    """A damaged header is an error; ``tarfile`` takes it for the end of the archive. So is one by which a name, or
    what else belongs to a header, is huge: ``tarfile`` would read that whole, and gigabytes of zeros are few bytes when
    they are compressed."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type in _OF_HEADERS and found.size > _MOST_OF_A_HEADER:
            raise tarfile.ReadError(f"a header of {found.size} bytes")
        return found

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if type(error).__name__ in ("InvalidHeaderError", "TruncatedHeaderError"):  # the others are ends
                raise tarfile.ReadError(str(error)) from error
            raise


def _text_list(path: str, skipped: Counter[str]) -> Iterator[Picture]:
    try:
        with open(path, "rb") as file:
            yield from filter(None, _lines(file, os.path.dirname(path)))
    except OSError as error:
        yield _unreadable(path, error)


def _json_list(path: str, skipped: Counter[str]) -> Iterator[Picture]:
    """One JSON object per line, whose ``file_name`` (or ``path`` or ``image``) is relative to the list's folder."""
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip(b" \t\r\n\0\xef\xbb\xbf"):
                    yield _of_json(path, number, line)
    except OSError as error:
        yield _unreadable(path, error)


def _of_json(path: str, number: int, line: bytes) -> Picture:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        row = None
    if isinstance(row, dict) and (name := next((row[key] for key in _KEYS if isinstance(row.get(key), str)), None)):
        return Picture(name, os.path.join(os.path.dirname(path), name))
    detail = f"line {number} of {path!r} is no JSON object with a text in {' or '.join(_KEYS)}"
    return Picture(f"{path}:{number}", path, error=Failure("unreadable", detail))


def _may_be_there(path: str) -> bool:
    """No only where that is known: what may not be looked for fails in its turn, with the reason."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        pass
    return True


def _unreadable(path: str, error: OSError) -> Picture:
    return Picture(path, path, error=Failure("unreadable", f"the list {path!r} cannot be read: {error.strerror}"))


def _lines(lines: Iterable[bytes | None], folder: str, *, unix: bool = False) -> Iterator[Coming]:
    """The path in each line, relative to ``folder``. Blank lines are none; there are no comments: ``#1.jpg`` is a name.

    ``unix``: a carriage return at the end of a line is part of the name.
    """
    first = True
    for line in lines:
        if line is None:
            yield None
            continue
        if first:
            line, first = line.removeprefix(b"\xef\xbb\xbf"), False
        name = os.fsdecode(line if unix else line.removesuffix(b"\n").removesuffix(b"\r"))
        if name.strip():
            yield Picture(name, os.path.join(folder, name))


_BY_SUFFIX: dict[str, Callable[[str, Counter[str]], Iterator[Picture]]] = {
    **dict.fromkeys(ARCHIVES, _archive),
    ".txt": _text_list,
    ".jsonl": _json_list,
}
