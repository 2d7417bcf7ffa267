"""Caption data sets: the table of formats, and what every reader gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from models.errors import DataError
from models.lookup import resolve
from training.options import parse_options

FORMATS = {"karpathy": "training.data.karpathy:Karpathy"}


@dataclass(frozen=True)
class Example:
    """One picture and its captions."""

    image_id: str
    path: Path
    captions: tuple[str, ...]


@dataclass(frozen=True)
class Dropped:
    """One thing that the file holds and the data set does not."""

    position: str
    """Where it stands in the file, such as ``images[3].sentences[0]``."""
    image_id: str
    reason: str


@dataclass(frozen=True)
class DataReport:
    """What a reader kept and what it left out, so that nothing vanishes silently."""

    images: dict[str, int]
    """Images per split."""
    pairs: dict[str, int]
    """Image-caption pairs per split."""
    dropped: tuple[Dropped, ...]
    merged_images: int
    """Entries that listed a picture again and were joined with the first."""
    renamed_images: int
    """Images whose id another file had taken: their path became their id."""
    missing_files: tuple[str, ...]
    """Image files that are not there; their examples are left out (``on_missing: skip``)."""

    @property
    def dropped_by_reason(self) -> dict[str, int]:
        return dict(Counter(item.reason for item in self.dropped))

    def summary(self) -> str:
        """One line for people: split sizes, then whatever was left out."""
        sizes = [f"{split}: {count} images, {self.pairs[split]} captions" for split, count in self.images.items()]
        left_out = [f"{count} dropped ({reason})" for reason, count in sorted(self.dropped_by_reason.items())]
        if self.merged_images:
            left_out.append(f"{self.merged_images} repeated entries merged")
        if self.renamed_images:
            left_out.append(f"{self.renamed_images} images renamed (id taken)")
        if self.missing_files:
            left_out.append(f"{len(self.missing_files)} image files missing")
        return "; ".join(sizes + left_out)


@dataclass(frozen=True)
class Dataset:
    """The examples of each split, and the report of the reading."""

    splits: Mapping[str, tuple[Example, ...]]
    report: DataReport

    def split(self, name: str) -> tuple[Example, ...]:
        """The examples of one split, at least one.

        Raises:
            DataError: ``no_data`` when the split is absent or empty.
        """
        examples = self.splits.get(name, ())
        if not examples:
            there = ", ".join(split for split, held in self.splits.items() if held) or "none"
            raise DataError("no_data", f"split {name!r} holds no images; splits with images: {there}")
        return examples


class DatasetFormat(Protocol):
    """What every reader gives."""

    Options: ClassVar[type[BaseModel]]

    def __init__(self, options: Any) -> None: ...

    def read(self, splits: Collection[str] | None = None) -> Dataset:
        """The data set; image files are looked for in ``splits`` only (None: all)."""


def read_dataset(name: str, options: Mapping[str, Any], splits: Collection[str] | None = None) -> Dataset:
    """The data set that ``options`` of the format ``name`` describe.

    Raises:
        UnknownNameError: no such format.
        RequestError: ``invalid_request``, the options do not fit the format.
        DataError: the file cannot be used.
    """
    reader = resolve("data format", FORMATS, name)
    dataset: Dataset = reader(parse_options(f"data format {name!r}", reader.Options, options)).read(splits)
    return dataset
