"""Folders of tiny pictures, rows as a run writes them, and ``limner caption`` in this process."""

import errno
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from models.cli import run
from serving.folders.outputs import Destination, Existing, Output, open_output
from serving.folders.pictures import Picture
from serving.folders.sources import Sources
from tests.serving.support import pictures

HOSTILE_NAMES = (
    b"two\nlines\t.png",
    "emoji \U0001f431.png".encode(),
    "nfd e\u0301.png".encode(),
    b"not utf-8 \xff\xfe.png",
    b"-v.png",
    b"back\\slash.png",
    b" spaces .png",
    b"C:colon.png",
    b"quo'te\".png",
    b"x" * 251 + b".png",
)
"""Of files that people have; each is right on Linux."""


def write_pictures(folder: Path, *names: str | bytes) -> Path:
    """The folder, now with different pictures of these names."""
    for name, data in zip(names, pictures(len(names)), strict=True):
        path = os.path.join(os.fsencode(folder), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    return folder


def listed(*paths: str | Path, recursive: bool = False) -> list[Picture]:
    return list(Sources([str(path) for path in paths], recursive))


def row(name: str, *texts: str, error: str | None = None, **more: Any) -> dict[str, Any]:
    """A row as the fake captioner writes it."""
    captions = [
        {"text": text, "logprob": -1.5, "tokens": 3, "finish_reason": "stop", "clip_score": None, "scorer": None}
        for text in texts
    ]
    return {
        "file_name": name,
        "captions": captions,
        "descriptiveness": None,
        "expected_words": None,
        "fallback": False,
        "notes": [],
        "error": error and {"code": error, "detail": f"{name!r} failed"},
        "model": "fake",
        **more,
    }


def write_out(
    kind: str,
    place: Path,
    found: Sequence[Picture],
    rows: Iterable[dict[str, Any]],
    *,
    existing: Existing = Existing.SKIP,
    apart: bool = False,
    go_on: bool = False,
    killed: bool = False,
) -> list[dict[str, Any]]:
    """One run that writes these rows of those pictures that are not done; the rows as the output gave them back."""
    output = open_output(kind, Destination(place, existing, apart))
    with ending(output, killed=killed):
        output.open(go_on=go_on)
        by_name = {row["file_name"]: row for row in rows}
        todo = [(picture, by_name[picture.name]) for picture in found if not output.done(picture)]
        output.begin()
        written = output.write(todo)
        if not killed:
            output.finish(iter(found))
    return written


@contextmanager
def ending(output: Output, *, killed: bool = False) -> Iterator[None]:
    """Ends the run with the block; ``killed``: as the system would, the files closed and nothing else done."""
    try:
        yield
    finally:
        journal = getattr(output, "journal", None) or getattr(output, "_journal", None)
        if killed and journal is not None:
            journal._file.close()
            journal._file = None
        else:
            output.close()


def json_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8-sig").splitlines()]


def limner(*words: str | Path) -> int:
    """The exit code of ``limner caption`` with the fake model, in this process."""
    return run(["caption", *map(str, words), "--model", "fake", "--device", "cpu"])


@contextmanager
def as_nobody() -> Iterator[Path]:
    """A folder that everybody may look into, and the rights of a user who is not root."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        if os.getuid() != 0:
            yield Path(place)
            return
        try:
            yield Path(place)
        finally:
            os.setresuid(0, 0, 0)


def become_nobody() -> None:
    """Within ``as_nobody``: give up root's rights until the block ends."""
    if os.getuid() == 0:
        os.setresuid(65534, 65534, 0)


def no_space(*_: object, **__: object) -> None:
    """A write to a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
