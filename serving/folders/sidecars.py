"""Captions in a text file beside each picture, as trainers of other models read them."""

import os
import stat
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from models.errors import RequestError
from serving.folders.done import Done, Names
from serving.folders.journal import Journal
from serving.folders.outputs import NO_ROOM, Destination, Existing, Row, Written
from serving.folders.pictures import Picture, named_like_a_picture
from serving.folders.unfinished import drafted, sweep

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_TAIL = 10_000  # rows of the journal whose sidecars may not have been written when a run was killed: more than a batch


class Sidecars:
    """One caption per line in ``PICTURE.txt``, or ``PICTURE.jpg.txt`` where several pictures differ in suffix only.

    Rows go to a journal first: what a killed run did not write is written from there, and nothing is added twice.
    """

    suffix: ClassVar[str]

    def __init__(self, place: Destination) -> None:
        self._place = place
        self._journal = Journal(place.path / f"{self.suffix}.limner-journal")
        self._in_journal: set[str] = set()
        self._tail: dict[str, Row] = {}
        self._stems = lru_cache(maxsize=8)(_stems)
        self._met: dict[Path, str] = {}
        self._folders: set[Path] = set()
        self._names = Names()

    def open(self, *, go_on: bool) -> None:
        if self._place.apart:
            _make(self._place.path)
        self._in_journal = self._journal.open(fresh=not go_on)
        if not go_on:
            self._journal.clear()
        self._tail = {row["file_name"]: row for row in deque(self._journal.rows(), _TAIL)}

    def done(self, picture: Picture) -> Done | None:
        if picture.error is not None and not picture.in_archive:  # a line of a list that names no file
            return self._names.meet(picture.name)
        file = os.path.join(picture.path, picture.name) if picture.in_archive else picture.path
        if (again := self._names.meet(os.path.normpath(file))) is not None:  # a.jpg and ./a.jpg have one sidecar
            return again
        if picture.in_archive:
            with suppress(ValueError):  # it fails in its turn
                self.place_of(picture)  # taken now, whatever becomes of the picture: names go by the archive's order
        return Done.BEFORE if self._was_done_before(picture) else None

    def _was_done_before(self, picture: Picture) -> bool:
        if (row := self._tail.pop(picture.name, None)) is not None and self._keep(picture, row) is row:
            return True
        if self._place.existing is not Existing.SKIP:
            return picture.name in self._in_journal
        try:
            return bool(_content(self.place_of(picture)))
        except (OSError, ValueError):
            return False  # it fails in its turn

    def begin(self) -> None:
        pass

    def write(self, written: Sequence[Written]) -> list[Row]:
        self._journal.append([row for _, row in written])
        rows = [self._keep(picture, row) for picture, row in written]
        if lost := [row for row, (_, before) in zip(rows, written, strict=True) if row is not before]:
            self._journal.append(lost)
        return rows

    def finish(self, pictures: Iterable[Picture]) -> Sequence[Row]:
        for folder in self._folders:
            sweep(folder)
        self._journal.remove()
        return ()

    def close(self) -> None:
        self._journal.close()

    def _keep(self, picture: Picture, row: Row) -> Row:
        """Write the sidecar of a row; the row with an error where that fails for this picture alone."""
        if row["error"] is not None:
            return row
        lines = [text for caption in row["captions"] if (text := " ".join(caption["text"].split()))]
        if not lines:
            return _failed(row, "no_caption", f"{picture.where}: the model wrote nothing")
        try:
            path = self.place_of(picture)
            before = _content(path)
            after = _merged(before, "\n".join(lines).encode() + b"\n", self._place.existing)
            if after != before:
                if self._place.apart:
                    path.parent.mkdir(parents=True, exist_ok=True)
                _replace(path, after)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise
            reason = getattr(error, "strerror", None) or error
            return _failed(row, "unwritable", f"the captions of {picture.where} cannot be written: {reason}")
        return row

    def place_of(self, picture: Picture) -> Path:
        """The sidecar of a picture. Raises ValueError for a member of an archive whose name leads out of it."""
        if self._place.apart:
            target = self._place.path / self._name_below(picture)
        elif picture.in_archive:
            raise ValueError("it lies in an archive: name a folder for the captions by --out")
        else:
            target = Path(picture.path)
        self._folders.add(target.parent)
        stem = os.path.splitext(target.name)[0]
        alone = named_like_a_picture(target.name) and self._is_alone(picture, target.with_name(stem.casefold()))
        return target.with_name((stem if alone else target.name) + self.suffix)

    def _name_below(self, picture: Picture) -> str:
        """The name of a picture below the folder of all sidecars: its own, or its absolute path where that leads out,
        as ``tar`` does it."""
        name = os.path.normpath(picture.name)
        if not os.path.isabs(name) and name.split(os.sep)[0] != os.pardir:
            return name
        if picture.in_archive:  # whoever made it meant harm
            raise ValueError(f"the name {picture.name!r} leads out of {str(self._place.path)!r}")
        return os.path.abspath(picture.path).lstrip(os.sep)

    def _is_alone(self, picture: Picture, stem: Path) -> bool:
        """Whether no other picture would have the same sidecar; of an archive, which is read once, no earlier one."""
        if picture.in_archive:
            return self._met.setdefault(stem, picture.name) == picture.name
        stems = self._stems(os.path.dirname(picture.path))
        return stems is not None and stems[stem.name] < 2


class TextSidecars(Sidecars):
    suffix = ".txt"


class CaptionSidecars(Sidecars):
    suffix = ".caption"


def _stems(folder: str) -> Counter[str] | None:
    """How many files of a directory would have the sidecar ``KEY.txt``: ``KEY.jpg`` and its like, and ``KEY``. None
    where it cannot be listed: any picture may then have such neighbours."""
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in entries if not _is_folder(entry)]
    except OSError:
        return None
    stems = (os.path.splitext(name)[0] for name in names if named_like_a_picture(name))
    return Counter(name.casefold() for name in (*stems, *names))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """No where that cannot be known, as of a link to itself: what is taken for a file costs a short name only."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _content(path: Path) -> bytes:
    """What stands in a sidecar; nothing where there is none, or it is blank or ends in NULs after a power failure.

    Raises ValueError for what is no text, which is somebody else's.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # the opening of a FIFO would wait for a writer
            raise ValueError(f"{str(path)!r} is not a regular file")
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    if content.startswith(_UTF16):
        return content
    if b"\0" in content.rstrip(b"\0"):
        raise ValueError(f"{str(path)!r} is there and is no text")
    return content if content.removeprefix(_BOM).strip() and not content.endswith(b"\0") else b""


def _merged(before: bytes, captions: bytes, existing: Existing) -> bytes:
    if not before or existing is Existing.OVERWRITE:
        return captions
    if existing is Existing.SKIP:
        return before
    if before.startswith(_UTF16):
        raise ValueError("what is there already is UTF-16: convert it to UTF-8")
    bom, body = (_BOM, before[len(_BOM) :]) if before.startswith(_BOM) else (b"", before)
    lines, own = body.rstrip().replace(b"\r\n", b"\n").split(b"\n"), captions.rstrip().split(b"\n")
    new = b"".join(line + b"\n" for line in dict.fromkeys(own) if line not in lines)
    if not new:
        return before
    return bom + body.rstrip() + b"\n" + new if existing is Existing.APPEND else bom + new + body


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        raise RequestError("invalid_request", f"{str(folder)!r} cannot be a folder: {error.strerror}") from error


def _replace(path: Path, content: bytes) -> None:
    """Write a file that is whole or absent; its name while it is not is short, since the other may be very long. A link
    in a folder of pictures is replaced: what it leads to may be anything."""
    with drafted(path) as (_, file):
        file.write(content)


def _failed(row: Row, code: str, detail: str) -> Row:
    return {**row, "captions": [], "error": {"code": code, "detail": detail}}
