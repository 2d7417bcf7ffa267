"""Reader of COCO's own ``captions_*.json``, one file for each split."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from models.errors import DataError
from training.data import Dataset
from training.data.collector import Collector, Entry
from training.data.files import as_id, describe_json, load_json
from training.data.options import FileOptions, Split

Rows = list[tuple[str, Any]]
"""Position and content of the entries of a list."""


class Coco:
    """``{"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}``.

    Ids are compared as text, so that ``1`` and ``"1"`` are one. An id that stands for two files is left out with its
    captions: nothing tells which of the two they describe.
    """

    class Options(FileOptions):
        pass

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, splits: Collection[str] | None = None) -> Dataset:
        """The examples of every split, in the order of ``images``; files are looked for in ``splits`` (None: all).

        Raises:
            DataError: ``no_data``, ``not_json`` or ``wrong_schema``.
        """
        collector = Collector()
        for split, path, root, prefix in self.options.files():
            images, annotations = _parts(path, prefix)
            for entry in _entries(collector, split, images, annotations):
                collector.add(entry, root)
        return collector.dataset(splits, look=self.options.on_missing != "keep")


def _parts(path: Path, prefix: str) -> tuple[Rows, Rows]:
    """The two lists of a captions file."""
    raw = load_json(path)
    images, annotations = (raw.get("images"), raw.get("annotations")) if isinstance(raw, dict) else (None, None)
    if (
        not isinstance(images, list)
        or not isinstance(annotations, list)
        or (annotations and not any(isinstance(row, dict) and "caption" in row for row in annotations))
    ):
        found = describe_json(raw)
        raise DataError("wrong_schema", f"{path} is {found}; the coco format has images[] and annotations[].caption")
    return (
        [(f"{prefix}images[{index}]", row) for index, row in enumerate(images)],
        [(f"{prefix}annotations[{index}]", row) for index, row in enumerate(annotations)],
    )


def _entries(collector: Collector, split: Split, images: Rows, annotations: Rows) -> Iterator[Entry]:
    """The pictures with their captions; what does not fit together is noted."""
    names, unclear = _names(collector, images)
    captions: dict[str, Rows] = {image_id: [] for image_id in names}
    seen: dict[str, tuple[str | None, Any]] = {}
    for position, row in _objects(collector, annotations):
        image_id, caption = as_id(row.get("image_id")), row.get("caption")
        annotation_id = as_id(row.get("id"))
        if image_id not in captions:
            reason = "id stands for two files" if image_id in unclear else "no image with this id"
            collector.note(position, image_id or "?", reason)
        elif annotation_id is not None and seen.get(annotation_id) == (image_id, caption):
            collector.note(position, image_id, "annotation repeats an earlier one")
        else:
            if annotation_id is not None and annotation_id in seen:
                collector.note(position, image_id, "annotation id is used twice", annotation_id, "kept")
            seen.setdefault(annotation_id or position, (image_id, caption))
            captions[image_id].append((position, caption))
    for image_id, (position, file_name) in names.items():
        yield Entry(position, split, image_id, file_name, captions[image_id])


def _names(collector: Collector, images: Rows) -> tuple[dict[str, tuple[str, Any]], set[str]]:
    """Id -> position and file name of each picture, and the ids that stand for two files."""
    names: dict[str, tuple[str, Any]] = {}
    unclear: dict[str, str] = {}
    for position, row in _objects(collector, images):
        image_id = as_id(row.get("id"))
        if image_id is None:
            collector.note(position, str(row.get("file_name", "?")), "no id")
        elif image_id not in names:
            names[image_id] = (position, row.get("file_name"))
        elif names[image_id][1] == row.get("file_name"):
            collector.note(position, image_id, "image is listed again", effect="kept")
        else:
            collector.note(position, image_id, "id stands for two files", str(row.get("file_name")))
            unclear.setdefault(image_id, names[image_id][0])
    for image_id, position in unclear.items():
        collector.note(position, image_id, "id stands for two files", str(names.pop(image_id)[1]))
    return names, set(unclear)


def _objects(collector: Collector, rows: Rows) -> Iterator[tuple[str, dict[str, Any]]]:
    for position, row in rows:
        if isinstance(row, dict):
            yield position, row
        else:
            collector.note(position, "?", f"entry is not an object ({type(row).__name__})")
