"""Where captions of pictures go: a table of formats, and what each of them must do."""

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from models.errors import RequestError
from models.lookup import resolve
from serving.folders.done import Done
from serving.folders.pictures import Picture, is_archive, named_like_a_picture

Row = dict[str, Any]
Written = tuple[Picture, Row]
"""A picture and its row."""


class Existing(StrEnum):
    """What becomes of captions that are there already."""

    SKIP = "skip"
    OVERWRITE = "overwrite"
    APPEND = "append"
    PREPEND = "prepend"


@dataclass(frozen=True)
class Destination:
    """What a run writes to."""

    path: Path
    """The file; for formats of many files their folder."""
    existing: Existing = Existing.SKIP
    apart: bool = False
    """Of sidecars: whether they lie below ``path`` by name, and not beside their pictures."""


class Output(Protocol):
    """One format. Whatever ``write`` was given outlives the process from then on, and is there once only."""

    def open(self, *, go_on: bool) -> None:
        """Make sure that it can be written, and read what is done. ``go_on``: an unfinished run of the same options
        was here before.

        Raises:
            RequestError: ``invalid_request`` for a place that cannot be written or holds something else.
        """

    def done(self, picture: Picture) -> Done | None:
        """Why the picture needs no captions any more; None where it does. Asked once of each that the run meets."""

    def begin(self) -> None:
        """The first rows are about to be written. Until then what was there stays: a run may find nothing to do, or no
        model to do it with."""

    def write(self, written: Sequence[Written]) -> list[Row]:
        """Keep rows; gives them back, with an error where the row of one picture could not be kept."""

    def finish(self, pictures: Iterable[Picture]) -> Sequence[Row]:
        """All pictures of the run are written; ``pictures`` lists them anew. Gives the rows that could not be kept
        after all, with an error."""

    def close(self) -> None:
        """The run ends, finished or not."""


FORMATS: dict[str, str] = {
    "jsonl": "serving.folders.jsonl:JsonLines",
    "txt": "serving.folders.sidecars:TextSidecars",
    "caption": "serving.folders.sidecars:CaptionSidecars",
    "csv": "serving.folders.tables:Csv",
    "parquet": "serving.folders.tables:Parquet",
    "metadata": "serving.folders.imagefolder:Metadata",
    "webdataset": "serving.folders.shards:Shards",
}

OF_MANY_FILES = frozenset({"txt", "caption", "webdataset"})
SHARED = frozenset({"txt", "caption", "metadata"})
"""Formats in which captions of another origin may stand beside ours."""
ADDS_TO_CAPTIONS = frozenset({"txt", "caption"})
"""Formats that can append and prepend."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors after which nothing more can be written at all."""

_OF_A_FILE = frozenset({".txt", ".caption", ".tar", ".tgz", ".gz", ".json", ".jsonl", ".csv", ".parquet"})


def format_of(name: str | None, out: Path | None) -> str | None:
    """The format that was asked for, by name or by the suffix of ``out``; None: lines on the terminal.

    Raises:
        RequestError: ``invalid_request`` for a suffix that tells nothing.
        UnknownNameError: there is no such format.
    """
    if name is not None:
        if name not in FORMATS:
            resolve("format", FORMATS, name)
        return name
    if out is None:
        return None
    if out.is_dir():
        detail = (
            f"{str(out)!r} is a folder: name a file in it, or add --format, one of {', '.join(sorted(OF_MANY_FILES))}"
        )
        raise RequestError("invalid_request", detail)
    if (told := told_by_name(out)) is not None:
        return told
    known = ", ".join(FORMATS)
    raise RequestError(
        "invalid_request", f"the name {str(out)!r} does not tell the format: add --format, one of {known}"
    )


def told_by_name(out: Path | None) -> str | None:
    """The format that the name of a file tells, if it tells one."""
    if out is None:
        return None
    if out.name == "metadata.jsonl":
        return "metadata"
    suffix = out.suffix.lower().removeprefix(".")
    return suffix if suffix in ("jsonl", "csv", "parquet") else None


def destination(kind: str, out: Path | None, paths: Sequence[str], existing: Existing) -> Destination:
    """Where a format is written, by default with the pictures of the first path.

    Raises:
        RequestError: ``invalid_request`` where there is no such place, or the format cannot do ``existing``.
    """
    if existing in (Existing.APPEND, Existing.PREPEND) and kind not in ADDS_TO_CAPTIONS:
        allowed = " and ".join(sorted(ADDS_TO_CAPTIONS))
        raise RequestError("invalid_request", f"--existing {existing}: of {allowed} only, not of {kind}")
    if out is not None and out.name == "run.json":
        raise RequestError("invalid_request", "run.json is where the record of the run goes: name another --out")
    if out is not None and kind not in OF_MANY_FILES and named_like_a_picture(out.name):
        raise RequestError("invalid_request", f"--out {str(out)!r} is named like a picture: name another")
    if out is not None and kind in OF_MANY_FILES and out.suffix.lower() in _OF_A_FILE and not out.is_dir():
        detail = f"--out {str(out)!r} is named like a file, and --format {kind} writes many: name a folder for them"
        raise RequestError("invalid_request", detail + ", or take jsonl, csv or parquet")
    if out is not None and kind not in OF_MANY_FILES and out.is_dir():
        raise RequestError("invalid_request", f"--out {str(out)!r} is a folder: name a file in it")
    if out is not None:
        return Destination(out, existing, apart=kind in OF_MANY_FILES)
    if kind in ADDS_TO_CAPTIONS:
        if archive := next(filter(is_archive, paths), None):
            detail = f"--format {kind} of the archive {archive!r} needs --out, a folder"
            raise RequestError("invalid_request", detail)
        first = paths[0]
        return Destination(Path(first if os.path.isdir(first) else os.path.dirname(first) or "."), existing)
    if kind == "metadata" and len(paths) == 1 and os.path.isdir(paths[0]):
        return Destination(Path(paths[0], "metadata.jsonl"), existing)
    raise RequestError("invalid_request", f"--format {kind} needs --out")


def open_output(kind: str, place: Destination) -> Output:
    """The output of a format; nothing is written yet."""
    output: Output = resolve("format", FORMATS, kind)(place)
    return output
