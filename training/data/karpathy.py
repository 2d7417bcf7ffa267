"""Reader of Karpathy's ``dataset_*.json`` and of the flat lists that BLIP derived from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from models.errors import DataError
from training.data import Dataset
from training.data.collector import Collector, Entry
from training.data.files import as_id, describe_json, load_json
from training.data.options import ReaderOptions, Split

SPLITS: dict[str, Split] = {"train": "train", "restval": "train", "val": "val", "test": "test"}


class Karpathy:
    """``{"images": [{"filepath", "filename", "split", "sentences": [{"raw"}], "cocoid" or "imgid"}]}``.

    ``restval`` joins ``train``. A flat list of ``{"image", "caption": text or [texts]}`` is read too; as it names no
    split, all of it becomes ``flat_split``.
    """

    class Options(ReaderOptions):
        path: Path
        images_root: Path
        flat_split: Split = "train"

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, splits: Collection[str] | None = None) -> Dataset:
        """The examples of every split, in the order of the file; files are looked for in ``splits`` (None: all).

        Raises:
            DataError: ``no_data``, ``not_json`` or ``wrong_schema``.
        """
        collector = Collector()
        for position, entry in _entries(collector, load_json(self.options.path), self.options):
            split, image_id = SPLITS.get(str(entry.get("split"))), _image_id(entry)
            if split is None:
                named = image_id or str(entry.get("filename", "?"))
                collector.note(position, named, f"unknown split {entry.get('split')!r}")
                continue
            captions = list(_captions(position, entry.get("sentences")))
            collector.add(Entry(position, split, image_id, _listed_path(entry), captions), self.options.images_root)
        return collector.dataset(splits, look=self.options.on_missing != "keep")


def _entries(collector: Collector, raw: Any, options: Karpathy.Options) -> Iterator[tuple[str, dict[str, Any]]]:
    """Position and image entry in Karpathy's layout, whichever of the two layouts the file has; what is none is noted,
    as long as others are."""
    if isinstance(raw, list) and any(map(_is_flat, raw)):
        for index, row in enumerate(raw):
            if not _is_flat(row):
                collector.note(f"[{index}]", "?", "row has no image and caption")
        yield from _flat_entries(raw, options.flat_split)
        return
    images = raw.get("images") if isinstance(raw, dict) else None
    if not isinstance(images, list) or (
        images and not any(isinstance(entry, dict) and "sentences" in entry for entry in images)
    ):
        found = describe_json(raw)
        raise DataError("wrong_schema", f"{options.path} is {found}; the karpathy format has images[].sentences[].raw")
    for index, entry in enumerate(images):
        if isinstance(entry, dict):
            yield f"images[{index}]", entry
        else:
            collector.note(f"images[{index}]", "?", f"entry is not an object ({type(entry).__name__})")


def _is_flat(row: Any) -> bool:
    return isinstance(row, dict) and {"image", "caption"} <= row.keys()


def _flat_entries(rows: list[Any], split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """One entry per picture of a flat list, in which the rows of a picture need not be adjacent."""
    by_image: dict[str, dict[str, Any]] = {}
    for index, row in enumerate(rows):
        if not _is_flat(row):
            continue
        texts = row["caption"] if isinstance(row["caption"], list) else [row["caption"]]
        name = row["image"] if isinstance(row["image"], str) else ""
        entry = by_image.setdefault(name, {"position": f"[{index}]", "filename": name, "split": split, "sentences": []})
        entry["sentences"].extend({"raw": text} for text in texts)
    for entry in by_image.values():
        yield entry.pop("position"), entry


def _captions(position: str, sentences: Any) -> Iterator[tuple[str, Any]]:
    """Position and content of each caption."""
    for index, sentence in enumerate(sentences if isinstance(sentences, list) else []):
        yield f"{position}.sentences[{index}]", sentence.get("raw") if isinstance(sentence, dict) else sentence


def _image_id(entry: dict[str, Any]) -> str | None:
    """``cocoid``, else ``imgid``."""
    return as_id(entry.get("cocoid")) or as_id(entry.get("imgid"))


def _listed_path(entry: dict[str, Any]) -> str | None:
    """``filepath/filename``; Flickr's files have no ``filepath``."""
    name, folder = entry.get("filename"), entry.get("filepath")
    if not isinstance(name, str) or not name.strip():
        return None
    return f"{folder}/{name}" if isinstance(folder, str) and folder else name
