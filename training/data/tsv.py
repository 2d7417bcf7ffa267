"""Reader of tables with a header ``image<TAB>caption``, one caption a line."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from training.data import Dataset
from training.data.collector import Collector
from training.data.options import Encoding, FileOptions, Split
from training.data.rows import Columns, add_rows, table_rows


class Tsv:
    """Several lines with one image are its captions; further columns are not looked at.

    A double quote is a character like any other, as the media type ``text/tab-separated-values`` has it; with
    ``quoted`` cells may be quoted as in CSV, which is how pandas writes them.
    """

    class Options(FileOptions):
        image_column: str = "image"
        caption_column: str = "caption"
        quoted: bool = False
        encoding: Encoding = "utf-8"

    def __init__(self, options: Options) -> None:
        self.options = options

    def read(self, splits: Collection[str] | None = None) -> Dataset:
        """The examples of every split, in the order of the file; files are looked for in ``splits`` (None: all).

        Raises:
            DataError: ``no_data`` or ``wrong_schema``.
        """
        collector = Collector()
        for split, path, root, prefix in self.options.files():
            self._add_file(collector, split, path, root, prefix)
        return collector.dataset(splits, look=self.options.on_missing != "keep")

    def _add_file(self, collector: Collector, split: Split, path: Path, root: Path, prefix: str) -> None:
        options = self.options
        columns = Columns(options.image_column, options.caption_column)
        rows = table_rows(path, options.encoding, columns, delimiter="\t", quoted=options.quoted)
        add_rows(collector, rows, columns, root, prefix=prefix, split_of=lambda _: split)
