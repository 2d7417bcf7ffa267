"""Reader of Karpathy's ``dataset_*.json`` and of the flat lists that BLIP derived from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from models.errors import DataError
from training.data import DataReport, Dataset, Dropped, Example
from training.data.files import inside_root, load_json
from training.data.text import clean_caption

SPLITS = {"train": "train", "restval": "train", "val": "val", "test": "test"}
_SHOWN_MISSING = 5


@dataclass
class _Collected:
    """What the pass over the entries has gathered so far."""

    examples: dict[str, Example] = field(default_factory=dict)
    split_of: dict[str, str] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    merged_images: int = 0
    renamed_images: int = 0

    def drop(self, position: str, image_id: str, reason: str) -> None:
        self.dropped.append(Dropped(position, image_id, reason))


class Karpathy:
    """``{"images": [{"filepath", "filename", "split", "sentences": [{"raw"}], "cocoid" or "imgid"}]}``.

    ``restval`` joins ``train``. A flat list of ``{"image", "caption": text or [texts]}`` is read too; as it names no
    split, all of it becomes ``flat_split``.
    """

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        path: Path
        images_root: Path
        on_missing: Literal["error", "skip", "keep"] = "error"
        """A missing image file is an error, is left out and reported, or is not looked for."""
        flat_split: Literal["train", "val", "test"] = "train"

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, splits: Collection[str] | None = None) -> Dataset:
        """The examples of every split, in the order of the file; files are looked for in ``splits`` (None: all).

        Raises:
            DataError: ``not_json``, ``wrong_schema``, ``no_data`` or ``missing_image``.
        """
        collected = _Collected()
        for position, entry in _entries(load_json(self.options.path), self.options):
            self._collect(collected, position, entry)
        if not collected.examples:
            reasons = Counter(item.reason for item in collected.dropped)
            raise DataError("no_data", f"{self.options.path} holds no usable image; dropped: {dict(reasons)}")
        missing = self._missing(collected, splits)
        kept: dict[str, list[Example]] = {split: [] for split in SPLITS.values()}
        for image_id, example in collected.examples.items():
            if image_id not in missing:
                kept[collected.split_of[image_id]].append(example)
        report = DataReport(
            images={split: len(held) for split, held in kept.items()},
            pairs={split: sum(len(example.captions) for example in held) for split, held in kept.items()},
            dropped=tuple(collected.dropped),
            merged_images=collected.merged_images,
            renamed_images=collected.renamed_images,
            missing_files=tuple(missing.values()),
        )
        return Dataset({split: tuple(held) for split, held in kept.items()}, report)

    def _collect(self, collected: _Collected, position: str, entry: dict[str, Any]) -> None:
        """Adds one image entry, or notes why not."""
        listed = _listed_path(entry)
        image_id = _image_id(entry) or listed or "?"
        split = SPLITS.get(str(entry.get("split")))
        if split is None:
            return collected.drop(position, image_id, f"unknown split {entry.get('split')!r}")
        if listed is None:
            return collected.drop(position, image_id, "no file name")
        if (inside := inside_root(listed)) is None:
            return collected.drop(position, image_id, "path leaves the image folder")
        captions = _captions(collected, position, image_id, entry.get("sentences"))
        if not captions:
            return collected.drop(position, image_id, "image without captions")
        path = self.options.images_root / inside
        if image_id in collected.examples and collected.examples[image_id].path != path:
            # Two pictures under one id: keep both apart instead of letting the second take the first one's place.
            image_id = inside
            collected.renamed_images += 1
        earlier = collected.examples.get(image_id)
        if earlier is None:
            collected.examples[image_id] = Example(image_id, path, captions)
            collected.split_of[image_id] = split
        elif collected.split_of[image_id] != split:
            collected.drop(position, image_id, f"image is already in split {collected.split_of[image_id]!r}")
        else:
            new = tuple((Counter(captions) - Counter(earlier.captions)).elements())
            collected.examples[image_id] = Example(image_id, path, earlier.captions + new)
            collected.merged_images += 1

    def _missing(self, collected: _Collected, splits: Collection[str] | None) -> dict[str, str]:
        """Image id -> path of the files that are not there."""
        if self.options.on_missing == "keep":
            return {}
        missing = {
            image_id: str(example.path)
            for image_id, example in collected.examples.items()
            if (splits is None or collected.split_of[image_id] in splits) and not example.path.is_file()
        }
        if missing and self.options.on_missing == "error":
            shown = ", ".join(list(missing.values())[:_SHOWN_MISSING])
            raise DataError(
                "missing_image",
                f"{len(missing)} image files are not there: {shown}{', ...' if len(missing) > _SHOWN_MISSING else ''}; "
                "correct images_root, or set on_missing to skip",
            )
        return missing


def _entries(raw: Any, options: Karpathy.Options) -> Iterator[tuple[str, dict[str, Any]]]:
    """Position and image entry in Karpathy's layout, whichever of the two layouts the file has."""
    if (
        isinstance(raw, list)
        and raw
        and all(isinstance(row, dict) and {"image", "caption"} <= row.keys() for row in raw)
    ):
        yield from _flat_entries(raw, options.flat_split)
        return
    images = raw.get("images") if isinstance(raw, dict) else None
    if not isinstance(images, list) or not all(isinstance(entry, dict) for entry in images):
        raise _wrong_schema(options.path, raw)
    if images and not any("sentences" in entry for entry in images):
        raise _wrong_schema(options.path, raw)
    for index, entry in enumerate(images):
        yield f"images[{index}]", entry


def _flat_entries(rows: list[dict[str, Any]], split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """One entry per picture of a flat list, in which the rows of a picture need not be adjacent."""
    by_image: dict[str, dict[str, Any]] = {}
    for index, row in enumerate(rows):
        texts = row["caption"] if isinstance(row["caption"], list) else [row["caption"]]
        name = row["image"] if isinstance(row["image"], str) else ""
        entry = by_image.setdefault(name, {"position": f"[{index}]", "filename": name, "split": split, "sentences": []})
        entry["sentences"].extend({"raw": text} for text in texts)
    for entry in by_image.values():
        yield entry.pop("position"), entry


def _wrong_schema(path: Path, raw: Any) -> DataError:
    """The error that says what the file is instead."""
    first = raw[0] if isinstance(raw, list) and raw else None
    if isinstance(first, dict) and {"image_id", "caption"} <= first.keys():
        found = "a results file (a list of image_id and caption)"
    elif isinstance(raw, dict) and isinstance(raw.get("annotations"), list):
        captions = any(isinstance(item, dict) and "caption" in item for item in raw["annotations"])
        found = "a COCO captions file (images and annotations)" if captions else "a COCO instances file (no captions)"
    elif isinstance(raw, dict):
        found = f"an object with the keys {sorted(raw)[:8]}"
    else:
        found = f"a {type(raw).__name__}"
    return DataError("wrong_schema", f"{path} is {found}; the karpathy format has images[].sentences[].raw")


def _captions(collected: _Collected, position: str, image_id: str, sentences: Any) -> tuple[str, ...]:
    """The usable captions of one image; the others are noted."""
    captions = []
    for index, sentence in enumerate(sentences if isinstance(sentences, list) else []):
        raw = sentence.get("raw") if isinstance(sentence, dict) else sentence
        text = clean_caption(raw) if isinstance(raw, str) else ""
        if text:
            captions.append(text)
        else:
            reason = "empty caption" if isinstance(raw, str) else f"caption is not text ({type(raw).__name__})"
            collected.drop(f"{position}.sentences[{index}]", image_id, reason)
    return tuple(captions)


def _image_id(entry: dict[str, Any]) -> str | None:
    """``cocoid``, else ``imgid``, as text: never through a float, which merges ids above 2**53."""
    for key in ("cocoid", "imgid"):
        value = entry.get(key)
        if isinstance(value, (int, str)) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return None


def _listed_path(entry: dict[str, Any]) -> str | None:
    """``filepath/filename``; Flickr's files have no ``filepath``."""
    name, folder = entry.get("filename"), entry.get("filepath")
    if not isinstance(name, str) or not name.strip():
        return None
    return f"{folder}/{name}" if isinstance(folder, str) and folder else name
