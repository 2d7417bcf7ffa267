"""The part of a data set that an evaluation looks at, and the pictures in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL.Image import Image

from models.errors import RequestError
from training.data import DataReport, Example, read_dataset

Progress = Callable[[int, int], None]
"""Called with images done and images in all."""


@dataclass(frozen=True)
class Selection:
    """A format of ``training.data.FORMATS`` with its options, a split, and how many of its images (None: all)."""

    options: Mapping[str, Any]
    format: str = "karpathy"
    split: str = "test"
    limit: int | None = None

    def read(self) -> tuple[tuple[Example, ...], DataReport]:
        """The first ``limit`` examples of the split, and the report on the whole file.

        Raises:
            RequestError: a limit below 1, or options that do not fit the format.
            DataError: the data cannot be used.
        """
        if self.limit is not None and self.limit < 1:
            raise RequestError("invalid_request", f"limit must be at least 1, not {self.limit}")
        dataset = read_dataset(self.format, self.options, splits=[self.split])
        return dataset.split(self.split)[: self.limit], dataset.report

    def describe(self) -> dict[str, Any]:
        """Plain data for the record of an evaluation."""
        return {"format": self.format, **{key: str(value) for key, value in self.options.items()}}


def image_batches(
    examples: Sequence[Example], size: int, progress: Progress | None = None
) -> Iterator[tuple[Sequence[Example], list[Image]]]:
    """Examples with their RGB pictures, at most ``size`` at a time; ``progress`` hears of each batch after its use.

    Raises:
        ImageError: a picture cannot be read; the message names its file.
        RequestError: a size below 1.
    """
    if size < 1:
        raise RequestError("invalid_request", f"batch_size must be at least 1, not {size}")
    for start in range(0, len(examples), size):
        part = examples[start : start + size]
        yield part, [example.load().image for example in part]
        if progress is not None:
            progress(start + len(part), len(examples))
