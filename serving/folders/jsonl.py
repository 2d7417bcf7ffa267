"""JSON lines: one row of a picture each, errors included; the file grows while the run goes on."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from serving.folders.done import Done, Names
from serving.folders.journal import Journal
from serving.folders.outputs import Destination, Existing, Row, Written
from serving.folders.pictures import Picture
from serving.folders.unfinished import sweep


class JsonLines:
    """The journal itself is the output."""

    def __init__(self, place: Destination) -> None:
        self._journal = Journal(place.path)
        self._overwrite = place.existing is Existing.OVERWRITE
        self._fresh = False
        self._names = Names()

    def open(self, *, go_on: bool) -> None:
        self._fresh = self._overwrite and not go_on
        self._names = Names(self._journal.open(fresh=self._fresh))

    def done(self, picture: Picture) -> Done | None:
        return self._names.meet(picture.name)

    def begin(self) -> None:
        if self._fresh:
            self._journal.clear()

    def write(self, written: Sequence[Written]) -> list[Row]:
        rows = [row for _, row in written]
        self._journal.append(rows)
        return rows

    def finish(self, pictures: Iterable[Picture]) -> Sequence[Row]:
        self._journal.check_there()  # else the captions are nowhere
        sweep(Path(os.path.realpath(self._journal.path)).parent)
        return ()

    def close(self) -> None:
        self._journal.close()
