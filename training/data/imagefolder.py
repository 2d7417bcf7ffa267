"""Reader of the Hugging Face ImageFolder layout: pictures in a folder, captions in ``metadata.jsonl`` or ``.csv``."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from models.errors import DataError
from training.data import Dataset
from training.data.collector import Collector
from training.data.files import pictures_under
from training.data.options import Encoding, ReaderOptions, Split
from training.data.rows import Columns, Row, add_rows, jsonl_rows, table_rows

METADATA = ("metadata.jsonl", "metadata.csv")

SPLIT_FOLDERS: dict[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "validation", "valid", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}


class ImageFolder:
    """``FOLDER/metadata.jsonl`` with rows ``{"file_name", "text": text or [texts]}``, paths relative to the file.

    Folders called ``train``, ``validation`` and the like are splits, whether each has its own metadata file or one file
    lists ``train/0001.jpg``; all else is ``split``. Pictures that no row lists are noted.
    """

    class Options(ReaderOptions):
        path: Path
        """The folder, or one metadata file."""
        images_root: Path | None = None
        """The folder that paths start from; None: that of the metadata file."""
        split: Split = "train"
        image_column: str = "file_name"
        caption_column: str = "text"
        encoding: Encoding = "utf-8"

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, splits: Collection[str] | None = None) -> Dataset:
        """The examples of every split, in the order of the files; pictures are looked for in ``splits`` (None: all).

        Raises:
            DataError: ``no_data`` or ``wrong_schema``.
        """
        collector, listed = Collector(), set[str]()
        metadata = list(self._metadata())
        for split, path in metadata:
            prefix = f"{os.path.relpath(path, self.options.path)}: " if len(metadata) > 1 else ""
            listed |= self._add_file(collector, split, path, prefix)
        if self.options.on_missing != "keep":
            self._note_unlisted(collector, [path.parent for _, path in metadata], listed)
        return collector.dataset(splits, look=self.options.on_missing != "keep")

    def _add_file(self, collector: Collector, split: Split, path: Path, prefix: str) -> set[str]:
        """The paths that a metadata file lists, after its pictures were taken."""
        root = self.options.images_root or path.parent
        columns = Columns(self.options.image_column, self.options.caption_column)
        rows = list(_rows(path, self.options.encoding, columns))

        def split_of(name: str) -> Split:
            parts = Path(name).parts  # none of "."
            return SPLIT_FOLDERS.get(parts[0].lower(), split) if len(parts) > 1 else split

        add_rows(collector, rows, columns, root, prefix=prefix, split_of=split_of)
        names = (row.fields.get(columns.image) for row in rows)
        return {os.path.normpath(root / name) for name in names if isinstance(name, str)}

    def _metadata(self) -> Iterator[tuple[Split, Path]]:
        """The metadata files, each with the split of what lies in no split folder."""
        folder = self.options.path
        try:
            names = sorted(os.listdir(folder))
        except (NotADirectoryError, FileNotFoundError):  # a file, or nothing, which the reading tells
            yield self.options.split, folder
            return
        except OSError as error:
            raise DataError("no_data", f"cannot list {folder}: {error.strerror}") from error
        splits = [(SPLIT_FOLDERS.get(name.lower()), folder / name) for name in names]
        folders = [(split, inner) for split, inner in splits if split is not None and os.path.isdir(inner)]
        found = [(split, _metadata_file(inner)) for split, inner in [(self.options.split, folder), *folders]]
        if not any(path for _, path in found):
            raise DataError("no_data", f"{folder} holds no {' or '.join(METADATA)}, nor do its split folders")
        yield from ((split, path) for split, path in found if path is not None)

    def _note_unlisted(self, collector: Collector, folders: list[Path], listed: set[str]) -> None:
        """Pictures without a row. In a folder that is not the metadata file's own, others than ours may lie."""
        root = self.options.images_root
        tops = [one for one in folders if not any(other in one.parents for other in folders)]
        for folder in tops:
            if root is not None and not (os.path.isdir(root) and os.path.samefile(root, folder)):
                continue
            for path in pictures_under(root or folder):
                if os.path.normpath(path) not in listed:
                    collector.note(str(path), path.name, "picture without a row")


def _metadata_file(folder: Path) -> Path | None:
    found = [folder / name for name in METADATA if os.path.isfile(folder / name)]
    if len(found) > 1:
        raise DataError("wrong_schema", f"{folder} holds {' and '.join(METADATA)}; give the one that counts as path")
    return found[0] if found else None


def _rows(path: Path, encoding: str, columns: Columns) -> Iterator[Row]:
    if path.suffix.lower() == ".csv":
        return table_rows(path, encoding, columns, delimiter=",", quoted=True)
    return jsonl_rows(path, encoding, columns)
