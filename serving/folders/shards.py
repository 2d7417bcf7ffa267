"""WebDataset: tar archives of pictures with their captions, for training at scale."""

import io
import json
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path, PurePosixPath

from models.errors import ImageError, RequestError
from models.image_formats import sniff
from models.images import read_bytes
from serving.folders.outputs import Destination, Existing, Row
from serving.folders.pictures import SUFFIXES, Picture
from serving.folders.unfinished import drafted
from serving.folders.whole_files import WholeFile, name_in_file
from serving.output import json_line

Members = Mapping[str, bytes]
"""The files of one sample by name."""

_MOST_PICTURES = 5_000
_MOST_BYTES = 1 << 30
_SHARD = re.compile(r"[0-9]{5,}\.tar")
_NOT_IN_KEYS = re.compile(r"[.\\\x00-\x1f\x7f]")


class Shards(WholeFile):
    """``00000.tar`` and so on: each picture as it was, its first caption as ``.txt``, its row as ``.json``, all called
    as the picture is.

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
        self._keys = _Keys()

    @property
    def keeps_earlier(self) -> bool:
        return self.place.existing is Existing.SKIP

    def earlier_names(self) -> Iterator[str]:
        for shard in self._shards():
            for key, name in _held(shard):
                self._keys.take(key)
                yield name

    def open(self, *, go_on: bool) -> None:
        if not self.keeps_earlier:
            for shard in self._shards():
                next(_held(shard))  # raises where it is not ours to replace
        super().open(go_on=go_on)

    def finish(self, pictures: Iterable[Picture]) -> list[Row]:
        """Pictures that are gone by now, or that cannot be read any more, are in no shard: their rows with an error."""
        waiting = {
            row["file_name"]: place
            for row, place in self.journal.places()
            if row["captions"] and name_in_file(row["file_name"]) not in self._earlier_names
        }
        earlier = self._shards()
        first = 1 + int(earlier[-1].stem) if earlier and self.keeps_earlier else 0
        lost: list[Row] = []
        written = _write(self._folder, first, self._samples(waiting, pictures, lost))
        lost += [_gone(self.journal.at(place), "it is not there any more") for place in waiting.values()]
        for shard in set() if self.keeps_earlier else set(earlier) - set(written):
            shard.unlink()
        self.journal.remove()
        return lost

    def _samples(self, waiting: dict[str, int], pictures: Iterable[Picture], lost: list[Row]) -> Iterator[Members]:
        """The members of each picture that has a row, once. Takes what it gives, or finds lost, from ``waiting``."""
        for picture in pictures:
            if (place := waiting.pop(picture.name, None)) is None:
                continue
            row = self.journal.at(place)
            try:
                data = read_bytes(picture.path) if picture.data is None else picture.data
            except ImageError as error:
                lost.append(_gone(row, error.detail))
                continue
            yield _members(self._keys.key_of(picture.name), picture, data, row)

    def _shards(self) -> list[Path]:
        """In order of their numbers. A folder that cannot be listed is no empty one: the first would be written over.

        Raises:
            RequestError: ``invalid_request``.
        """
        try:
            names = os.listdir(self._folder)
        except OSError as error:
            detail = f"the folder {str(self._folder)!r} cannot be listed: {error.strerror}"
            raise RequestError("invalid_request", detail) from error
        found = (self._folder / name for name in names if _SHARD.fullmatch(name))
        return sorted(found, key=lambda path: int(path.stem))


class _Keys:
    """The names of samples: those of their pictures, as far as a key can hold them, and each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, key: str) -> None:
        """Give this one to nobody."""
        self._taken.add(key)

    def key_of(self, name: str) -> str:
        """A key nobody has. What follows the first dot of a member is its kind, so that a key has none."""
        stem, suffix = os.path.splitext(name_in_file(name))
        whole = stem if suffix.lower() in SUFFIXES else stem + suffix
        parts = (_NOT_IN_KEYS.sub("_", part) for part in PurePosixPath(whole).parts if part not in ("/", ".."))
        plain = "/".join(parts) or "_"
        choices = chain((plain, plain + suffix.replace(".", "_")), (f"{plain}_{number}" for number in count(2)))
        key = next(key for key in choices if key not in self._taken)
        self.take(key)
        return key


def _held(shard: Path) -> Iterator[tuple[str, str]]:
    """Key and picture of each sample of a shard, of which there is one at least.

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
                    yield member.name.removesuffix(".json"), name_in_file(row["file_name"])
                archive.members.clear()  # type: ignore[attr-defined]  # else all headers stay in memory
        if not there_are:
            raise ValueError("no member .json with captions")
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        detail = f"{str(shard)!r} is no shard of captions ({error}): move it, or name another --out"
        raise RequestError("invalid_request", detail) from error


def _write(folder: Path, first: int, samples: Iterator[Members]) -> list[Path]:
    """Shards of the samples, in order."""
    written: list[Path] = []
    sample = next(samples, None)
    while sample is not None:
        place = folder / f"{first + len(written):05d}.tar"
        with drafted(place) as (_, file):
            with tarfile.open(fileobj=file, mode="w") as archive:
                pictures = 0
                while sample is not None:
                    _add(archive, sample)
                    archive.members.clear()  # type: ignore[attr-defined]  # they are only kept
                    pictures += 1
                    sample = next(samples, None)
                    if pictures >= _MOST_PICTURES or file.tell() >= _MOST_BYTES:
                        break
            file.flush()
            os.fsync(file.fileno())
        written.append(place)
    return written


def _add(archive: tarfile.TarFile, sample: Members) -> None:
    for name, content in sample.items():
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def _members(key: str, picture: Picture, data: bytes, row: Row) -> Members:
    suffix = os.path.splitext(picture.name)[1].lower()
    suffix = suffix if suffix in SUFFIXES else f".{sniff(data).lower()}"
    text = row["captions"][0]["text"] + "\n"
    return {key + suffix: data, f"{key}.txt": text.encode(), f"{key}.json": json_line(row)}


def _gone(row: Row, why: str) -> Row:
    detail = f"{row['file_name']!r} was captioned, but is in no shard: {why}"
    return {**row, "captions": [], "error": {"code": "unreadable", "detail": detail}}
