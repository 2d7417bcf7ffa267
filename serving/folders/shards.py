"""WebDataset: tar archives of pictures with their captions, for training at scale."""

import io
import json
import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.errors import ImageError, RequestError
from models.image_formats import sniff
from models.images import read_bytes
from serving.folders.outputs import Destination, Existing, Row
from serving.folders.pictures import SUFFIXES, Picture
from serving.folders.unfinished import unfinished
from serving.folders.whole_files import WholeFile, name_in_file, sync
from serving.output import json_line

_MOST_PICTURES = 5_000
_MOST_BYTES = 1 << 30


class Shards(WholeFile):
    """``00000.tar`` and so on: each picture as it was, its first caption as ``.txt``, its row as ``.json``.

    Shards of an earlier run stay, and new ones follow; they are whole, or not there.
    """

    def __init__(self, place: Destination) -> None:
        try:
            place.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            detail = f"{str(place.path)!r} cannot be a folder: {error.strerror}"
            raise RequestError("invalid_request", detail) from error
        super().__init__(Destination(place.path / "shards", place.existing))
        self._folder = place.path

    @property
    def keeps_earlier(self) -> bool:
        return self.place.existing is Existing.SKIP

    def earlier_names(self) -> Iterator[str]:
        for shard in self._shards():
            yield from _names_in(shard)

    def open(self, *, go_on: bool) -> None:
        if not self.keeps_earlier:
            for shard in self._shards():
                next(_names_in(shard))  # raises where it is not ours to replace
        super().open(go_on=go_on)

    def finish(self, pictures: Iterable[Picture]) -> None:
        rows = {row["file_name"]: row for row in self.new_rows() if row["captions"]}
        earlier = self._shards()
        first = 1 + int(earlier[-1].stem) if earlier and self.keeps_earlier else 0
        written = _write(self._folder, first, rows, pictures)
        for shard in set() if self.keeps_earlier else set(earlier) - set(written):
            shard.unlink()
        self.journal.remove()

    def _shards(self) -> list[Path]:
        """In order of their numbers."""
        found = (path for path in self._folder.glob("*.tar") if re.fullmatch(r"[0-9]{5,}", path.stem))
        return sorted(found, key=lambda path: int(path.stem))


def _names_in(shard: Path) -> Iterator[str]:
    """The pictures of a shard, of which there is one at least.

    Raises:
        RequestError: ``invalid_request`` for an archive of another origin.
    """
    there_are = False
    try:
        with tarfile.open(shard, "r|") as archive:
            for member in archive:
                if member.name.endswith(".json") and (file := archive.extractfile(member)):
                    row = json.load(file)
                    there_are = bool(row["captions"])
                    yield name_in_file(row["file_name"])
        if not there_are:
            raise ValueError("no member .json with captions")
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        detail = f"{str(shard)!r} is no shard of captions ({error}): move it, or name another --out"
        raise RequestError("invalid_request", detail) from error


def _write(folder: Path, first: int, rows: dict[str, Row], pictures: Iterable[Picture]) -> list[Path]:
    """Shards of the pictures that have rows, in order."""
    other = unfinished(folder / "shard")
    written: list[Path] = []
    chosen = ((picture, row) for picture in pictures if (row := rows.pop(picture.name, None)))  # each once
    number = 0
    try:
        while (one := next(chosen, None)) is not None:
            with other.open("wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
                size = count = 0
                while one is not None:
                    size += _add(archive, f"{first + len(written):05d}-{number:09d}", *one)
                    number, count = number + 1, count + 1
                    if count >= _MOST_PICTURES or size >= _MOST_BYTES:
                        break
                    one = next(chosen, None)
            if not size:  # all of them are gone
                continue
            sync(other)
            written.append(folder / f"{first + len(written):05d}.tar")
            other.replace(written[-1])
    finally:
        other.unlink(missing_ok=True)
    return written


def _add(archive: tarfile.TarFile, key: str, picture: Picture, row: dict[str, Any]) -> int:
    """Add the members of one picture; gives the bytes of the picture. One that is gone by now is left out."""
    with suppress(ImageError):
        data = read_bytes(picture.path) if picture.data is None else picture.data
        suffix = os.path.splitext(picture.name)[1].lower()
        suffix = suffix if suffix in SUFFIXES else f".{sniff(data).lower()}"
        text = row["captions"][0]["text"] + "\n"
        for name, content in ((key + suffix, data), (key + ".txt", text.encode()), (key + ".json", json_line(row))):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        return len(data)
    return 0
