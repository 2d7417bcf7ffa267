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
from serving.folders.done import Done
from serving.folders.ours import RECORD
from serving.folders.outputs import ADDS_TO_CAPTIONS, OF_MANY_FILES, SHARED, Destination, Row
from serving.folders.unfinished import whole
from serving.folders.whole_files import name_in_file, sync

State = Literal["running", "stopped", "finished"]


@dataclass
class Summary:
    """Counts of one run, this part of it if it was stopped before."""

    captioned: int = 0
    copies: int = 0
    """How many of these have the captions of another picture, with the same bytes."""
    done: Counter[Done] = field(default_factory=Counter)
    """Pictures that needed no captions any more, by reason."""
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
        return self.captioned + self.failed + self.done.total()

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

    def take_back(self, row: Row) -> None:
        """Count a row with an error in place of the one that was written before."""
        self.captioned -= 1
        self.add(row)

    def line(self) -> str:
        """The counts in one line."""
        copies = f" ({self.copies} of them copies of others)" if self.copies else ""
        parts = [f"{self.captioned} captioned{copies}", f"{self.failed} failed"]
        parts += [f"{self.done[why]} {why.replace('_', ' ')}" for why in Done if self.done[why]]
        if self.skipped:
            parts.append("left out: " + ", ".join(f"{n} {reason}" for reason, n in sorted(self.skipped.items())))
            if self.skipped["archive"]:
                parts.append("archives are read where they are named themselves")
        return f"{'; '.join(parts)} ({self.seconds:.1f} s)"


class RunFile:
    """``run.json`` of a folder: what was asked for, whether it is finished, and the counts."""

    def __init__(self, kind: str, place: Destination, options: Mapping[str, Any], root: str | None = None) -> None:
        """``options``: all that decides what the captions are. ``root``: what the names of pictures are relative to."""
        folder = place.path if kind in OF_MANY_FILES else place.path.parent
        self._path = folder / RECORD
        self._kind = kind
        self._place = place
        self._output = kind if kind in OF_MANY_FILES else name_in_file(place.path.name)
        of = None if root is None else name_in_file(os.path.relpath(os.path.realpath(root), os.path.realpath(folder)))
        asked = {**options, "pictures_of": of, "format": kind, "existing": place.existing}
        self._options = json.loads(json.dumps(asked))

    def goes_on(self) -> bool:
        """Whether the last run here asked for the same and did not come to its end."""
        before = self._before()
        return before is not None and before.get("state") != "finished" and before.get("options") == self._options

    def check(self) -> None:
        """Raise ``invalid_request`` where the record cannot be kept, or a file of its name is of another origin."""
        folder = self._path.parent
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            detail = f"{os.fspath(self._path)!r}, the record of the run, cannot be written: its folder is read-only"
            raise RequestError("invalid_request", f"{detail}; name an --out in another folder")
        if self._content() is None and self._path.is_file() and self._path.read_bytes().strip(b"\0 \t\r\n"):
            detail = f"{os.fspath(self._path)!r} is not of limner, which keeps its record under this name"
            raise RequestError("invalid_request", f"{detail}: move it, or name another --out")

    def check_options(self) -> None:
        """Raise ``invalid_request`` where captions are there, or on their way, that were asked for otherwise."""
        before = self._before()
        if before is None or not isinstance(options := before.get("options"), dict):
            return
        finished = before.get("state") == "finished"
        if finished and not self._place.path.exists():
            return
        for name in sorted(self._fixed(finished, {*options, *self._options})):
            if options.get(name) != self._options.get(name):
                what, there, now = _first_difference(name, options.get(name), self._options.get(name))
                found = "holds" if finished else "waits for the end of a run that was stopped, for"
                detail = (
                    f"{self._output!r} {found} captions made with {what} {json.dumps(there)}, not {json.dumps(now)}"
                )
                hint = "name another --out, or --existing overwrite"
                raise RequestError("invalid_request", f"{detail}: {hint if finished else f'finish that one, {hint}'}")

    def _fixed(self, finished: bool, options: set[str]) -> set[str]:
        """Which options must be those of the run before. Names of pictures of one folder mean nothing in another."""
        if self._kind in ADDS_TO_CAPTIONS:
            return {"pictures_of"} if self._place.apart else set()
        return {"pictures_of"} if self._kind in SHARED and finished else options - {"existing"}

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
                "copies": summary.copies,
                **{str(why): summary.done[why] for why in Done},
                "left_out": dict(sorted(summary.skipped.items())),
            },
            "failures": dict(sorted(summary.failures.items())),
            "began": summary.began_at,
            "ended": None if state == "running" else _now(),
            "seconds": round(seconds, 3),
            "images_per_s": round((summary.captioned + summary.failed) / max(seconds, 1e-9), 2),
        }
        if others := self._others():
            content["others"] = others
        with whole(self._path) as other:
            other.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
            sync(other)

    def _before(self) -> dict[str, Any] | None:
        """What is known of the last run that wrote this output; None where there was none."""
        content = self._content() or {}
        if content.get("output") == self._output:
            return content
        others = content.get("others")
        before = others.get(self._output) if isinstance(others, dict) else None
        return before if isinstance(before, dict) else None

    def _others(self) -> dict[str, Any]:
        """State and options of the last runs that wrote other outputs to this folder."""
        content = self._content() or {}
        others = content["others"] if isinstance(content.get("others"), dict) else {}
        last = {name: content.get(name) for name in ("state", "options")}
        known = {**others, str(content.get("output")): last} if content else {}
        return {name: known[name] for name in known if name != self._output}

    def _content(self) -> dict[str, Any] | None:
        """The file; None where there is none of ours."""
        try:
            content = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) and "limner" in content else None


def _first_difference(name: str, there: Any, now: Any) -> tuple[str, Any, Any]:
    """Where two values of an option differ, as closely as they are alike in form."""
    if isinstance(there, dict) and isinstance(now, dict):
        key = next((key for key in there if key in now and there[key] != now[key]), None)
        return (name, there, now) if key is None else _first_difference(key, there[key], now[key])
    if isinstance(there, list) and isinstance(now, list) and len(there) == len(now):
        pairs = zip(there, now, strict=True)
        return _first_difference(name, *next(pair for pair in pairs if pair[0] != pair[1]))
    return name, there, now


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
