"""Gathering of examples, the same for every data format: what is taken, what is not, and what is said of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.data import DataReport, Dataset
from training.data.example import Example
from training.data.files import inside_root, picture_path
from training.data.options import SPLITS, Split
from training.data.report import Defect, Effect
from training.data.text import clean_caption

MOST_CHARACTERS = 10_000
"""Of a caption. What is longer is no caption but a file that ended up in the wrong place."""


@dataclass(frozen=True)
class Entry:
    """One picture as a file lists it, unchecked."""

    position: str
    split: Split
    image_id: str | None
    """None: its path is its id."""
    file_name: Any
    captions: Sequence[tuple[str, Any]]
    """Position and content of each."""


@dataclass(frozen=True)
class _Kept:
    example: Example
    split: Split
    position: str


class Collector:
    """Takes what a reader finds, one picture at a time."""

    def __init__(self) -> None:
        self.defects: list[Defect] = []
        self._kept: dict[str, _Kept] = {}
        self._first_id: dict[str, str] = {}
        """Source of a picture -> the id under which it came first."""

    def note(self, position: str, image_id: str, reason: str, detail: str = "", effect: Effect = "dropped") -> None:
        self.defects.append(Defect(position, image_id, reason, detail, effect))

    def add(self, entry: Entry, root: Path) -> None:
        """Takes a picture that is a file under ``root``, or notes why not."""
        listed = entry.file_name if isinstance(entry.file_name, str) and entry.file_name.strip() else None
        image_id = entry.image_id or listed or "?"
        if listed is None:
            return self.note(entry.position, image_id, "no file name")
        if (inside := inside_root(listed)) is None:
            return self.note(entry.position, image_id, "path leaves the image folder", listed)
        captions = self.captions(image_id, entry.captions)
        if not captions:
            return self.note(entry.position, image_id, "image without captions")
        example = Example(entry.image_id or inside, picture_path(root, inside), captions)
        self.keep(entry.position, entry.split, example, inside)

    def captions(self, image_id: str, raw: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
        """The usable captions of one picture; the others are noted at their positions."""
        captions = []
        for position, content in raw:
            text = clean_caption(content) if isinstance(content, str) else ""
            if not isinstance(content, str):
                self.note(position, image_id, f"caption is not text ({type(content).__name__})")
            elif not text:
                self.note(position, image_id, "empty caption")
            elif len(text) > MOST_CHARACTERS:
                self.note(position, image_id, f"caption is longer than {MOST_CHARACTERS} characters", str(len(text)))
            else:
                captions.append(text)
        return tuple(captions)

    def keep(self, position: str, split: Split, example: Example, alias: str) -> None:
        """Takes a checked example; ``alias`` is its id where its own is taken by another picture."""
        source = example.source
        first = self._kept.get(self._first_id.get(source, ""))
        if first is not None and first.split != split:
            return self.note(position, example.image_id, f"image is already in split {first.split!r}", source)
        if self._taken(example.image_id, source):
            # Two pictures under one id: keep both apart instead of letting the second take the first one's place.
            self.note(position, example.image_id, "id is taken by another picture, its path is its id", alias, "kept")
            example = replace(example, image_id=source if self._taken(alias, source) else alias)
        known = self._kept.get(example.image_id)
        if known is not None:
            self.note(position, example.image_id, "image is listed again, its captions are joined", effect="kept")
            example, split, position = _joined(known.example, example), known.split, known.position
        elif first is not None:
            same = f"same picture as image {first.example.image_id}"
            self.note(position, example.image_id, "picture has two ids", same, "kept")
        self._first_id.setdefault(source, example.image_id)
        self._kept[example.image_id] = _Kept(example, split, position)

    def dataset(self, splits: Collection[str] | None, *, look: bool) -> Dataset:
        """What was taken, in order. With ``look``, pictures of ``splits`` (None: all) that are not there are left out
        and noted."""
        held: dict[str, list[Example]] = {split: [] for split in SPLITS}
        for image_id, kept in self._kept.items():
            path = kept.example.path
            if look and (splits is None or kept.split in splits) and not os.path.isfile(path):
                self.note(kept.position, image_id, "no such image file", str(path), "missing")
            else:
                held[kept.split].append(kept.example)
        report = DataReport(
            images={split: len(examples) for split, examples in held.items()},
            pairs={split: sum(len(one.captions) for one in examples) for split, examples in held.items()},
            defects=tuple(self.defects),
        )
        return Dataset({split: tuple(examples) for split, examples in held.items()}, report)

    def _taken(self, image_id: str, source: str) -> bool:
        known = self._kept.get(image_id)
        return known is not None and known.example.source != source


def _joined(earlier: Example, later: Example) -> Example:
    """The example with the captions of both listings, those in both once."""
    new = (Counter(later.captions) - Counter(earlier.captions)).elements()
    return replace(earlier, captions=earlier.captions + tuple(new))
