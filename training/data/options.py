"""The options that data formats have in common."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

T = TypeVar("T")


class ReaderOptions(BaseModel):
    """What every format has."""

    model_config = ConfigDict(extra="forbid")

    on_missing: Literal["error", "skip", "keep"] = "error"
    """A picture that is not there is an error, is left out and reported, or is not looked for."""


class FileOptions(ReaderOptions):
    """Of formats in which a file knows no splits: one file is one split."""

    path: Path | dict[Split, Path]
    """The file of one split, or a file for each split."""
    images_root: Path | dict[Split, Path]
    """The folder that paths in the file start from, for all splits or for each."""
    split: Split = "train"
    """What ``path`` is where it is one file."""

    @model_validator(mode="after")
    def _every_split_has_a_root(self) -> FileOptions:
        splits = by_split(self.path, self.split)
        if not splits:
            raise ValueError("path names no split")
        if isinstance(self.images_root, dict) and not splits.keys() <= self.images_root.keys():
            raise ValueError(f"path has the splits {list(splits)}, images_root {list(self.images_root)}")
        return self

    def files(self) -> Iterator[tuple[Split, Path, Path, str]]:
        """Split, file, folder of its pictures, and what positions in the file begin with."""
        files = by_split(self.path, self.split)
        for split, path in files.items():
            root = self.images_root[split] if isinstance(self.images_root, dict) else self.images_root
            yield split, path, root, f"{split}: " if len(files) > 1 else ""


def by_split(value: T | dict[Split, T], split: Split) -> dict[Split, T]:
    """``value`` for each split that it is given for: it may name them, or it is that of ``split``."""
    return value if isinstance(value, dict) else {split: value}


def _text_encoding(name: str) -> str:
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except LookupError as error:  # also for codecs that are no text encodings, such as base64
        raise ValueError("is no text encoding that Python knows") from error


Encoding = Annotated[str, AfterValidator(_text_encoding)]
"""A text encoding. A byte order mark in the file has precedence over it."""
