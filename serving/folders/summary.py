"""What a run did: counted while it runs, told at its end, kept as ``run.json`` beside its output."""

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from models import __version__
from models.errors import RequestError
from serving.folders.outputs import OF_MANY_FILES, Destination, Row
from serving.folders.whole_files import name_in_file

State = Literal["running", "stopped", "finished"]
NAME = "run.json"


@dataclass
class Summary:
    """Counts of one run, this part of it if it was stopped before."""

    captioned: int = 0
    already_done: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """Files of folders that are no pictures to caption, by reason."""
    failures: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Names of pictures by code of their error."""
    began: float = field(default_factory=time.monotonic)
    began_at: str = field(default_factory=lambda: _now())

    @property
    def failed(self) -> int:
        """Pictures without captions."""
        return sum(map(len, self.failures.values()))

    @property
    def pictures(self) -> int:
        """All that the run met."""
        return self.captioned + self.failed + self.already_done

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    def add(self, row: Row) -> None:
        """Count a row that was written."""
        if row["error"] is None:
            self.captioned += 1
        else:
            self.failures[row["error"]["code"]].append(name_in_file(row["file_name"]))

    def line(self) -> str:
        """The counts in one line."""
        parts = [f"{self.captioned} captioned", f"{self.failed} failed"]
        if self.already_done:
            parts.append(f"{self.already_done} done before")
        if self.skipped:
            parts.append("left out: " + ", ".join(f"{n} {reason}" for reason, n in sorted(self.skipped.items())))
        return f"{'; '.join(parts)} ({self.seconds:.1f} s)"


class RunFile:
    """``run.json`` of a folder: what was asked for, whether it is finished, and the counts."""

    def __init__(self, kind: str, place: Destination, options: Mapping[str, Any]) -> None:
        """``options``: all that decides what the captions are."""
        folder = place.path if kind in OF_MANY_FILES else place.path.parent
        self._path = folder / NAME
        self._place = place
        self._output = kind if kind in OF_MANY_FILES else name_in_file(place.path.name)
        self._options = json.loads(json.dumps({**options, "format": kind, "existing": place.existing}))

    def goes_on(self) -> bool:
        """Whether the last run here asked for the same and did not come to its end."""
        before = self._before()
        return before is not None and before.get("state") != "finished" and before.get("options") == self._options

    def check_options(self) -> None:
        """Raise ``invalid_request`` where captions are there, or on their way, that were asked for otherwise."""
        before = self._before()
        if before is None or not isinstance(options := before.get("options"), dict):
            return
        if before.get("state") == "finished" and not self._place.path.exists():
            return
        for name in sorted({*options, *self._options} - {"existing"}):
            if options.get(name) != self._options.get(name):
                there, now = (json.dumps(each.get(name)) for each in (options, self._options))
                detail = f"{self._output!r} holds captions made with {name} {there}, not {now}"
                raise RequestError("invalid_request", f"{detail}: name another --out, or --existing overwrite")

    def write(self, state: State, summary: Summary) -> None:
        """Put the file in place."""
        seconds = summary.seconds
        content = {
            "limner": __version__,
            "state": state,
            "output": self._output,
            "options": self._options,
            "counts": {
                "captioned": summary.captioned,
                "failed": summary.failed,
                "done_before": summary.already_done,
                "left_out": dict(sorted(summary.skipped.items())),
            },
            "failures": dict(sorted(summary.failures.items())),
            "began": summary.began_at,
            "ended": None if state == "running" else _now(),
            "seconds": round(seconds, 3),
            "images_per_s": round((summary.captioned + summary.failed) / max(seconds, 1e-9), 2),
        }
        unfinished = self._path.with_name(f".{os.getpid()}.limner-run")
        try:
            unfinished.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
            unfinished.replace(self._path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _before(self) -> dict[str, Any] | None:
        """The file of the last run that wrote this output; None where there is none."""
        try:
            content = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) and content.get("output") == self._output else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
