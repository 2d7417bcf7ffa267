"""How far a run is: a bar on the terminal, or now and then a line where there is none."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer

from serving.folders.outputs import Row
from serving.folders.summary import Summary

if TYPE_CHECKING:
    from rich.progress import Progress

_LINE_EVERY_S = 30.0


class Bar:
    """A bar with pictures per second, failures and the time left. A context; it is shown while the block runs."""

    def __init__(self, summary: Summary, *, shown: bool = True) -> None:
        """``shown``: whether anything but failures is told."""
        self._summary = summary
        self._done = 0
        self._total: int | None = None
        self._line_at = time.monotonic() + (_LINE_EVERY_S if shown else math.inf)
        self._bar = _bar() if shown and sys.stderr.isatty() else None
        self._task = self._bar.add_task("", total=None, rate="0.0", failed=0) if self._bar else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def found(self, total: int) -> None:
        """The number of all pictures is known."""
        self._total = total
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=total)

    def failed(self, row: Row) -> None:
        """A picture failed."""
        line = f"error: {row['error']['code']}: {row['error']['detail']}"
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            typer.echo(line, err=True)

    def moved(self, pictures: int) -> None:
        """So many more are done, or were before."""
        self._done += pictures
        rate = f"{(self._summary.captioned + self._summary.failed) / max(self._summary.seconds, 1e-9):.1f}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=pictures, rate=rate, failed=self._summary.failed)
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + _LINE_EVERY_S
            of = f" of {self._total}" if self._total is not None else ""
            typer.echo(f"{self._done}{of} pictures, {rate}/s, {self._summary.failed} failed", err=True)


def _bar() -> Progress:
    from rich.console import Console  # deferred: one picture needs no bar
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}/s, {task.fields[failed]} failed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
