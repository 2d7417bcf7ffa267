"""A file of JSON lines that survives the end of its writer at any moment: what was written before is kept whole."""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import IO, Any

from models.errors import RequestError
from serving.folders.unfinished import drafted
from serving.output import json_line

Row = Mapping[str, Any]

_BEGIN = b'{"file_name": "'  # of every row, as ``json_line`` writes it


class Journal:
    """Rows in the order in which they were added. One process writes at a time; it appends, and syncs what it did."""

    def __init__(self, path: Path) -> None:
        """Opens nothing yet."""
        self.path = path
        self.dropped = 0
        """Damaged lines that ``open`` found; their pictures count as not done."""
        self._file: IO[bytes] | None = None

    def open(self, *, fresh: bool = False) -> set[str]:
        """Begin to write, after the rows that are there; gives the names of those that hold captions.

        The last row of a name counts. Rows with an error, blank and damaged lines are taken out, so that their pictures
        come again. ``fresh``: what is there does not count, and stays until ``clear``.

        Raises:
            RequestError: ``invalid_request`` when the file cannot be written, is being written by another process, or
                holds something else.
        """
        self._file = self._locked_here()
        if fresh:
            return set()
        try:
            lines, clean = self._look_through()
            if not clean:
                self._keep(set(lines.values()))
        except BaseException:
            self.close()
            raise
        return set(lines)

    def clear(self) -> None:
        """Take out all rows."""
        assert self._file is not None
        self._file.truncate(0)

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows; they are on the disk when this returns.

        Raises:
            OSError: also where the file is no longer under its name; nobody would find the rows.
        """
        assert self._file is not None
        self._file.write(b"".join(map(json_line, rows)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.check_there()

    def check_there(self) -> None:
        """Raise FileNotFoundError where the file that is written was removed, renamed or replaced."""
        assert self._file is not None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                return
        raise FileNotFoundError(errno.ENOENT, "was taken away while it was written", str(self.path))

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows with a name, errors included, from the beginning."""
        for row in self._parsed():
            if isinstance(row, dict):
                yield row

    def places(self) -> Iterator[tuple[dict[str, Any], int]]:
        """The same, each with where it begins, for ``at``: memory for places is had where there is none for rows."""
        place = 0
        with self.path.open("rb") as file:
            for line in file:
                if isinstance(row := _row(line), dict):
                    yield row, place
                place += len(line)

    def at(self, place: int) -> dict[str, Any]:
        """The row that begins there."""
        with self.path.open("rb") as file:
            file.seek(place)
            row = _row(file.readline())
        assert isinstance(row, dict)
        return row

    def close(self) -> None:
        """End writing."""
        if self._file is not None:
            with suppress(OSError):  # somebody may have taken it away, or the folder may be read-only
                if not self.path.stat().st_size:  # an empty file says nothing
                    self.path.unlink()
            file, self._file = self._file, None
            file.close()

    def remove(self) -> None:
        """Take the file away, where there is one."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _locked_here(self) -> IO[bytes]:
        """The file of this name, open to append and locked; not one that another run has just put away."""
        try:
            if self.path.exists() and not self.path.is_file():  # the opening of a FIFO would wait for a reader
                what = "is a folder: name a file in it" if self.path.is_dir() else "is not a regular file: name another"
                raise RequestError("invalid_request", f"{str(self.path)!r} {what}")
            while True:
                file = _locked(self.path.open("ab"), self.path)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                        return file
                file.close()
        except OSError as error:
            raise RequestError("invalid_request", f"{str(self.path)!r} cannot be written: {error.strerror}") from error

    def _look_through(self) -> tuple[dict[str, int], bool]:
        """The line that counts for each name with captions, and whether there are no other lines."""
        lines: dict[str, int] = {}
        number = rows = strange = 0
        for number, row in enumerate(self._parsed(), 1):
            if isinstance(row, dict):
                rows += 1
                lines.pop(row["file_name"], None)
                if not row.get("error"):
                    lines[row["file_name"]] = number
            elif row is _Line.FOREIGN:
                raise self._something_else()
            else:
                self.dropped += row is not _Line.BLANK
                strange += row is _Line.STRANGE
        if strange and not rows:
            raise self._something_else()
        return lines, number == len(lines)

    def _something_else(self) -> RequestError:
        detail = f"{str(self.path)!r} holds something other than rows of captions: name another file"
        return RequestError("invalid_request", f"{detail}, or --existing overwrite")

    def _keep(self, numbers: set[int]) -> None:
        """Keep some lines, in a new file that takes the place of the old one."""
        assert self._file is not None
        with drafted(Path(os.path.realpath(self.path))) as (_, draft):
            file = os.fdopen(os.dup(draft.fileno()), "wb")  # it has the lock, so that nobody gets in between
            for number, row in enumerate(self._parsed(), 1):
                if isinstance(row, dict) and number in numbers:
                    file.write(json_line(row))
            file.flush()
            os.fsync(file.fileno())
        self._file.close()
        self._file = file

    def _parsed(self) -> Iterator["dict[str, Any] | _Line"]:
        with self.path.open("rb") as file:
            for line in file:
                yield _row(line)


def _locked(file: IO[bytes], path: Path) -> IO[bytes]:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RequestError("invalid_request", f"another run is writing {str(path)!r}") from None
    return file


class _Line(Enum):
    """What a line may be that is no row."""

    BLANK = auto()
    """Or NULs, which a power failure leaves."""
    TORN = auto()
    """The beginning of a row, or two of them in one line."""
    STRANGE = auto()
    """Anything: damage, or a line of some other file."""
    FOREIGN = auto()
    """A whole line of other data, which nobody wants to lose."""


def _row(line: bytes) -> dict[str, Any] | _Line:
    """The row in a line."""
    content = line.strip(b" \t\r\n\0\xef\xbb\xbf")
    if not content:
        return _Line.BLANK
    try:
        row = json.loads(content)
    except (ValueError, RecursionError):
        return _Line.TORN if content.startswith(_BEGIN) or _BEGIN.startswith(content) else _Line.STRANGE
    if not isinstance(row, dict):
        return _Line.STRANGE
    if not isinstance(name := row.get("file_name"), str) or not name or not {"captions", "arms"} & row.keys():
        return _Line.FOREIGN
    return row if line.endswith(b"\n") else _Line.TORN
