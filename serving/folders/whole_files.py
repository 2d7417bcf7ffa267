"""Formats that cannot grow line by line: rows wait in a hidden journal, the file is made when all are there."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from models.errors import RequestError
from serving.folders.done import Done, Names
from serving.folders.journal import Journal
from serving.folders.outputs import Destination, Existing, Row, Written
from serving.folders.pictures import Picture
from serving.folders.unfinished import whole
from serving.output import encoded

_BEFORE_A_BYTE = re.compile(r"\\+(?=x[0-9a-f]{2}|[\udc80-\udcff])")


class WholeFile:
    """Base of those formats; a subclass reads what an earlier run made, and makes the file."""

    def __init__(self, place: Destination) -> None:
        self.place = place
        self.journal = Journal(place.path.with_name(f".{place.path.name}.limner-journal"))
        self._earlier_names: set[str] = set()
        self._names = Names()

    def check(self) -> None:
        """Raise MissingDependencyError for a library that is needed and absent."""

    def earlier_names(self) -> Iterator[str]:
        """Names of pictures whose captions the file holds already, as ``name_in_file`` has them.

        Raises:
            RequestError: ``invalid_request`` for a file that holds something else.
        """
        raise NotImplementedError

    def make(self, place: Path, rows: Iterable[Row], pictures: Iterable[Picture]) -> None:
        """Make the file under another name, of what it held and ``rows``, which hold errors too."""
        raise NotImplementedError

    def open(self, *, go_on: bool) -> None:
        self.check()
        if self.place.path.is_dir():
            raise RequestError("invalid_request", f"{str(self.place.path)!r} is a folder: name a file in it")
        _check_writable(self.place.path)
        self._earlier_names = set(self.earlier_names()) if self.keeps_earlier else set()
        in_journal = {name_in_file(name) for name in self.journal.open(fresh=not go_on)}
        self._names = Names(in_journal | self._earlier_names)
        if not go_on:
            self.journal.clear()

    @property
    def keeps_earlier(self) -> bool:
        """Whether there is a file of an earlier run whose captions stay."""
        return self.place.existing is Existing.SKIP and self.place.path.exists()

    def done(self, picture: Picture) -> Done | None:
        return self._names.meet(name_in_file(picture.name))

    def begin(self) -> None:
        pass

    def write(self, written: Sequence[Written]) -> list[Row]:
        rows = [row for _, row in written]
        self.journal.append(rows)
        return rows

    def finish(self, pictures: Iterable[Picture]) -> Sequence[Row]:
        with whole(self.place.path) as other:
            self.make(other, self.new_rows(), pictures)
            sync(other)
        self.journal.remove()
        return ()

    def new_rows(self) -> Iterator[Row]:
        """Rows of the journal that the file does not hold: the last run may have ended just after making it."""
        return (row for row in self.journal.rows() if name_in_file(row["file_name"]) not in self._earlier_names)

    def close(self) -> None:
        self.journal.close()


def name_in_file(name: str) -> str:
    """The name in formats that hold UTF-8 only: bytes that are not are written as ``\\\\xff``. Backslashes before one
    of those, or before what only looks like one, are doubled: no two names become one."""
    return text_in_file(_BEFORE_A_BYTE.sub(lambda backslashes: 2 * backslashes[0], name))


def text_in_file(text: str) -> str:
    """A text for people, with names in it, in those formats."""
    return encoded(text).decode("utf-8", "backslashreplace")


def sync(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _check_writable(path: Path) -> None:
    for folder in (path.parent, Path(os.path.realpath(path)).parent):  # of a link, and of what it leads to
        if not folder.is_dir():
            detail = f"{str(path)!r} cannot be written: there is no folder {str(folder)!r}"
            raise RequestError("invalid_request", detail)
    if path.exists() and not os.access(path, os.W_OK):
        raise RequestError("invalid_request", f"{str(path)!r} cannot be written: permission denied")
