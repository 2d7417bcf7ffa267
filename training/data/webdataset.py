"""Reader of WebDataset shards: tars with ``KEY.jpg`` beside ``KEY.txt`` or ``KEY.json``."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from tarfile import TarFile, TarInfo
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from training.data import Dataset
from training.data.collector import Collector
from training.data.example import Example, Member
from training.data.files import PICTURE_SUFFIXES
from training.data.options import ReaderOptions, Split, by_split
from training.data.shards import Shard, find_shards, open_tar, read_shard

MOST_CAPTION_BYTES = 1024 * 1024

Patterns = Annotated[list[str], BeforeValidator(lambda value: [str(value)] if isinstance(value, str | Path) else value)]
Members = Mapping[str, TarInfo]


class WebDataset:
    """Samples are told apart by what precedes the first dot of a member's name. Pictures stay in their tars, which must
    not be compressed: an example knows where its bytes lie."""

    class Options(ReaderOptions):
        path: Patterns | dict[Split, Patterns]
        """Shards of one split, or of each split: ``train-{0000..0041}.tar``, ``val-*.tar``."""
        images_root: Path | None = None
        """The folder that relative patterns start from."""
        split: Split = "train"
        """What ``path`` is where it names no splits."""
        caption_members: list[str] = ["txt", "caption", "json"]
        """Extensions of the member with the caption; the first that a sample has counts."""
        caption_field: str = "caption"
        """The field of a ``.json`` member: a text, or a list of texts."""
        several_lines: Literal["join", "split"] = "join"
        """Whether the lines of a text member are one caption, or each line is one."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, splits: Collection[str] | None = None) -> Dataset:
        """The examples of every split, in the order of the shards; all are looked into, whatever ``splits`` are.

        Raises:
            DataError: ``no_data`` or ``wrong_schema``.
        """
        collector = Collector()
        for split, patterns in by_split(self.options.path, self.options.split).items():
            for path in find_shards(patterns, self.options.images_root):
                self._add_shard(collector, split, path)
        return collector.dataset(splits, look=False)

    def _add_shard(self, collector: Collector, split: Split, path: Path) -> None:
        with open_tar(path) as tar:
            shard = read_shard(tar, path.stat().st_size)
            for key, members in shard.samples.items():
                self._add_sample(collector, split, path, key, members, tar)
        _note_shard(collector, path, shard)

    def _add_sample(
        self, collector: Collector, split: Split, path: Path, key: str, members: Members, tar: TarFile
    ) -> None:
        position = f"{path.name}: {key}"
        pictures = [member for extension, member in members.items() if f".{extension}" in PICTURE_SUFFIXES]
        captions = collector.captions(key, self._captions(collector, path, key, members, tar))
        for member in pictures[1:]:
            collector.note(f"{path.name}: {member.name}", key, "sample has another picture")
        if not captions:
            collector.note(position, key, "image without captions")
        elif not pictures:
            collector.note(position, key, "no picture in the sample", f"{path}:{key}", "missing")
        else:
            picture = Member(pictures[0].name, pictures[0].offset_data, pictures[0].size)
            collector.keep(position, split, Example(key, path, captions, picture), f"{path.name}:{key}")

    def _captions(
        self, collector: Collector, path: Path, key: str, members: Members, tar: TarFile
    ) -> Iterator[tuple[str, Any]]:
        """Position and content of each caption of a sample."""
        extension = next((name for name in self.options.caption_members if name in members), None)
        if extension is None:
            return
        member = members[extension]
        position = f"{path.name}: {member.name}"
        try:
            text = _text(tar, member)
            found = _field(text, self.options.caption_field) if extension.endswith("json") else self._lines(text)
        except ValueError as error:
            return collector.note(position, key, str(error))
        if isinstance(found, list):
            yield from ((f"{position} [{index}]", one) for index, one in enumerate(found))
        else:
            if isinstance(found, str) and len(found.strip().splitlines()) > 1:
                collector.note(position, key, "lines of a caption are joined to one", effect="kept")
            yield position, found

    def _lines(self, text: str) -> list[str] | str:
        if self.options.several_lines == "join":
            return text
        return [line for line in text.split("\n") if line.strip()]


def _text(tar: TarFile, member: TarInfo) -> str:
    """The content of a member; ValueError says why there is none."""
    if member.size > MOST_CAPTION_BYTES:
        raise ValueError(f"caption member is larger than {MOST_CAPTION_BYTES} bytes")
    file = tar.extractfile(member)
    assert file is not None  # only of links and folders, which are no members of a sample
    try:
        return file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("caption is not utf-8") from error


def _field(text: str, name: str) -> Any:
    """One field of a JSON object; ValueError says why there is none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("caption member is not JSON") from error
    if not isinstance(content, dict) or name not in content:
        raise ValueError(f"caption member has no field {name!r}")
    return content[name]


def _note_shard(collector: Collector, path: Path, shard: Shard) -> None:
    for name, reason in shard.odd:
        collector.note(f"{path.name}: {name}", name, reason)
    if shard.damage:
        collector.note(path.name, path.name, "shard is damaged", f"{path}: {shard.damage}", "missing")
