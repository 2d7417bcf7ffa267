"""JSON lines: one row of a picture each, errors included; the file grows while the run goes on."""

from collections.abc import Iterable, Sequence

from serving.folders.journal import Journal
from serving.folders.outputs import Destination, Existing, Row, Written
from serving.folders.pictures import Picture


class JsonLines:
    """The journal itself is the output."""

    def __init__(self, place: Destination) -> None:
        self._journal = Journal(place.path)
        self._overwrite = place.existing is Existing.OVERWRITE
        self._fresh = False
        self._done: set[str] = set()

    def open(self, *, go_on: bool) -> None:
        self._fresh = self._overwrite and not go_on
        self._done = self._journal.open(fresh=self._fresh)

    def is_done(self, picture: Picture) -> bool:
        if picture.name in self._done:
            return True
        self._done.add(picture.name)  # a list may name it twice
        return False

    def begin(self) -> None:
        if self._fresh:
            self._journal.clear()

    def write(self, written: Sequence[Written]) -> list[Row]:
        rows = [row for _, row in written]
        self._journal.append(rows)
        return rows

    def finish(self, pictures: Iterable[Picture]) -> None:
        pass

    def close(self) -> None:
        self._journal.close()
