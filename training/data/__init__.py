"""Caption data sets: the table of formats, and what every reader gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from models.errors import DataError
from models.lookup import resolve
from training.data.example import Example, Member
from training.data.options import ReaderOptions
from training.data.report import DataReport, Defect
from training.options import parse_options

__all__ = [
    "FORMATS",
    "DataReport",
    "Dataset",
    "DatasetFormat",
    "Defect",
    "Example",
    "Member",
    "build_reader",
    "check_usable",
    "read_dataset",
]

FORMATS = {
    "karpathy": "training.data.karpathy:Karpathy",
    "coco": "training.data.coco:Coco",
    "imagefolder": "training.data.imagefolder:ImageFolder",
    "webdataset": "training.data.webdataset:WebDataset",
    "tsv": "training.data.tsv:Tsv",
}

_SHOWN_MISSING = 5


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

    Options: ClassVar[type[ReaderOptions]]
    options: Any

    def __init__(self, options: Any) -> None: ...

    def read(self, splits: Collection[str] | None = None) -> Dataset:
        """What the data set holds, which may be nothing; pictures are looked for in ``splits`` only (None: all).

        Whatever is wrong with single rows is in the report. Raises DataError for what cannot be read at all.
        """


def build_reader(name: str, options: Mapping[str, Any]) -> DatasetFormat:
    """The reader of the format ``name``.

    Raises:
        UnknownNameError: no such format.
        RequestError: ``invalid_request``, the options do not fit the format.
    """
    kind = resolve("data format", FORMATS, name)
    reader: DatasetFormat = kind(parse_options(f"data format {name!r}", kind.Options, options))
    return reader


def read_dataset(name: str, options: Mapping[str, Any], splits: Collection[str] | None = None) -> Dataset:
    """The data set that ``options`` of the format ``name`` describe.

    Raises:
        UnknownNameError: no such format.
        RequestError: ``invalid_request``, the options do not fit the format.
        DataError: the data cannot be used: ``no_data``, ``missing_image``, ``not_json`` or ``wrong_schema``.
    """
    reader = build_reader(name, options)
    dataset = reader.read(splits)
    check_usable(dataset, reader.options)
    return dataset


def check_usable(dataset: Dataset, options: ReaderOptions) -> None:
    """Nothing, for data that a run can use.

    Raises:
        DataError: ``no_data`` where nothing is left, ``missing_image`` for absent pictures unless ``on_missing`` allows
            them.
    """
    missing = dataset.report.missing
    if missing and options.on_missing == "error":
        shown = ", ".join(defect.detail or defect.position for defect in missing[:_SHOWN_MISSING])
        raise DataError(
            "missing_image",
            f"images missing: {len(missing)} ({shown}{', ...' if len(missing) > _SHOWN_MISSING else ''}); "
            "correct the paths, or set on_missing to skip",
        )
    if not any(dataset.splits.values()):
        reasons = dict(Counter(defect.reason for defect in dataset.report.defects))
        raise DataError("no_data", f"the data hold no usable image; left out: {reasons or 'nothing'}")
