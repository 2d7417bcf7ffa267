"""Rows as lines on standard output, each as soon as it is there."""

from collections.abc import Callable, Iterable, Sequence

from serving.folders.done import Done
from serving.folders.outputs import Row, Written
from serving.folders.pictures import Picture
from serving.output import json_line, stdout


class Terminal:
    """Nothing is kept, so everything is always to be done."""

    def __init__(self, line: Callable[[Row], bytes]) -> None:
        """``line``: pictures that failed have one in JSON only. Raises OSError where there is no standard output."""
        self._file = stdout()
        self._line = line
        self._with_failures = line is json_line

    def open(self, *, go_on: bool) -> None:
        pass

    def done(self, picture: Picture) -> Done | None:
        return None

    def begin(self) -> None:
        pass

    def write(self, written: Sequence[Written]) -> list[Row]:
        rows = [row for _, row in written]
        for row in rows:
            if self._with_failures or row["error"] is None:
                self._file.write(self._line(row))
        self._file.flush()
        return rows

    def finish(self, pictures: Iterable[Picture]) -> Sequence[Row]:
        return ()

    def close(self) -> None:
        pass
