"""Rows of line-based files - CSV, TSV, JSON lines - with the line that each begins on, and pictures out of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import DataError
from training.data.collector import Collector, Entry
from training.data.files import inside_root, load_text, undecoded
from training.data.options import Split


@dataclass(frozen=True)
class Row:
    """One row by column, or what is wrong with it."""

    line: int
    fields: dict[str, Any]
    problem: str = ""


@dataclass(frozen=True)
class Columns:
    """The names of the two columns that count."""

    image: str
    caption: str


def jsonl_rows(path: Path, encoding: str, columns: Columns) -> Iterator[Row]:
    """The objects of a file of JSON lines; blank lines are none. Only a line feed ends a line, not U+2028.

    Raises:
        DataError: ``no_data``, ``wrong_schema``: the file cannot be read, or no row has one of the columns.
    """
    found: dict[str, None] = {}
    for line, text in enumerate(load_text(path, encoding).split("\n"), start=1):
        if not text.strip():
            continue
        if undecoded(text):
            yield Row(line, {}, f"row is not {encoding}")
            continue
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            yield Row(line, {}, "row is not JSON")
            continue
        if isinstance(fields, dict):
            found.update(dict.fromkeys(fields))
            yield Row(line, fields)
        else:
            yield Row(line, {}, "row is not an object")
    if found:
        _check_columns(path, columns, found)


def table_rows(path: Path, encoding: str, columns: Columns, *, delimiter: str, quoted: bool) -> Iterator[Row]:
    """The rows of a table below its header. With ``quoted`` a cell in double quotes may hold line breaks.

    Raises:
        DataError: ``no_data``, ``wrong_schema``: the file cannot be read, or its first line is not the header.
    """
    header: list[str] | None = None
    for line, cells, problem in _cells(load_text(path, encoding), delimiter, quoted):
        if problem:
            yield Row(line, {}, problem)
        elif any(map(undecoded, cells)):
            yield Row(line, {}, f"row is not {encoding}")
        elif header is None:
            header = [cell.strip() for cell in cells]
            _check_columns(path, columns, header)
        elif len(cells) != len(header):
            yield Row(line, {}, f"row has {len(cells)} cells, the header {len(header)}")
        else:
            yield Row(line, dict(zip(header, cells, strict=True)))


def _check_columns(path: Path, columns: Columns, found: Collection[str]) -> None:
    names = ", ".join(found)
    if not {columns.image, columns.caption} <= set(found):
        wanted = f"{columns.image!r} and {columns.caption!r}"
        raise DataError("wrong_schema", f"{path} needs the columns {wanted}; it has: {names[:200]}")
    if len(set(found)) < len(found):
        raise DataError("wrong_schema", f"{path} names a column twice: {names[:200]}")


def _cells(text: str, delimiter: str, quoted: bool) -> Iterator[tuple[int, list[str], str]]:
    """Line, cells and problem of every row that is not blank."""
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        strict=True,
    )
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # a cell without end, or a stray quote: the rows after it are read
            yield line, [], f"row is no table row ({error})"
            continue
        if cells:
            yield line, cells, ""


def add_rows(
    collector: Collector,
    rows: Iterable[Row],
    columns: Columns,
    root: Path,
    *,
    prefix: str = "",
    split_of: Callable[[str], Split],
) -> None:
    """Takes the pictures of a file; the rows of one picture, wherever they stand, are its captions.

    Args:
        root: the folder of the pictures.
        prefix: what positions begin with.
        split_of: the split of a picture, by its path.
    """
    entries: dict[str, list[tuple[str, Any]]] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        position = f"{prefix}line {row.line}"
        listed, caption = row.fields.get(columns.image), row.fields.get(columns.caption)
        name = (inside_root(listed) or listed) if isinstance(listed, str) and listed.strip() else ""
        if row.problem or not name:
            collector.note(position, "?", row.problem or "no file name")
        elif (name, repr(caption)) in seen:
            collector.note(position, name, "row repeats an earlier one")
        else:
            seen.add((name, repr(caption)))
            entries.setdefault(name, []).append((position, caption))
    for name, captions in entries.items():
        collector.add(Entry(captions[0][0], split_of(name), None, name, list(_flat(captions))), root)


def _flat(captions: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The captions, those of lists one by one."""
    for position, caption in captions:
        if isinstance(caption, list):
            yield from ((f"{position} [{index}]", text) for index, text in enumerate(caption))
        else:
            yield position, caption
