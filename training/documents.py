"""Tables within documents: what stands between ``<!-- results: NAME -->`` and ``<!-- end of results -->``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from models.errors import DataError
from training.report import write_text

_BLOCK = re.compile(r"(<!-- results: (?P<name>[\w./-]+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def with_tables(text: str, tables: Mapping[str, str], where: str) -> str:
    """The text with each block holding the table that it names.

    Raises:
        DataError: ``no_data``; a block names a table that there is not, or there is no block.
    """

    def filled(block: re.Match[str]) -> str:
        name = block["name"]
        if name not in tables:
            raise DataError("no_data", f"{where}: there are no results {name!r}; there are: {', '.join(tables)}")
        return f"{block[1]}\n{tables[name]}\n{block[3]}"

    found, count = _BLOCK.subn(filled, text)
    if not count:
        raise DataError(
            "no_data", f"{where} has no place for a table: <!-- results: NAME --> ... <!-- end of results -->"
        )
    return found


def fill_tables(path: Path, tables: Mapping[str, str]) -> None:
    """Write the tables into the blocks of a document. Raises DataError as ``with_tables`` does."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError("no_data", f"{path} cannot be read: {error.strerror}") from error
    write_text(path, with_tables(text, tables, str(path)))
