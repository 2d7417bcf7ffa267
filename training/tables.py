"""Markdown tables of committed results: ``python -m training.tables docs/results``.

Every folder of evaluations is a table, every file a row of it (a comparison: a row for each captioner). ``table.json``
beside them may give ``title``, ``columns`` and ``order``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.errors import DataError
from training.data.files import load_json
from training.documents import fill_tables
from training.evaluation.results import read_results
from training.metrics.interface import Measurement
from training.module_command import run
from training.report import Evaluation, cell, heading_of, show

LAYOUT_FILE = "table.json"
_SIGNIFICANT = 0.01
_CONDITIONS = ("split", "images", "decode", "num_captions", "distractors", "tokenizer")

Key = tuple[str, str | None]
"""Name and scorer of a number."""


class Layout(BaseModel):
    """What ``table.json`` says."""

    model_config = ConfigDict(extra="forbid")

    title: str | None = None
    """None: the name of the folder."""
    columns: list[str] = Field(
        default=(
            "mean_words lexical_diversity clip_score r_at_1 r_at_5 bleu4 cider "
            "content_matches content_precision repetition cut"
        ).split(),
        min_length=1,
    )
    """Names of numbers; ``name@scorer`` for one scorer of several."""
    order: list[str] | None = None
    """Labels of the rows that are shown; None: all, in the order of the file names."""
    intervals: bool = True
    """Whether intervals are shown where there are any."""


def print_tables(
    folder: Annotated[Path, typer.Argument(help="Folder with a folder of results for each table.")],
    into: Annotated[
        list[Path] | None, typer.Option(help="Document to put the tables into, where it names them; repeatable.")
    ] = None,
) -> None:
    """Print a Markdown table for every folder of results."""
    found = tables(folder)
    for document in into or ():
        fill_tables(document, found)
    typer.echo("\n".join(found.values()), nl=False)


def tables(folder: Path) -> dict[str, str]:
    """The tables of the folder itself and of every folder in it that holds results, by the folder's name.

    Raises:
        DataError: ``no_data`` where there are none; ``not_json`` or ``wrong_schema`` for a file that is none.
    """
    groups = [folder, *sorted(path for path in folder.glob("**/*") if path.is_dir())]
    found = {group.name: table(group) for group in groups if _files(group)}
    if not found:
        raise DataError("no_data", f"{folder} holds no results: *.json of `limner evaluate --out`, in folders")
    return found


def table(folder: Path) -> str:
    """The table of one folder. Raises as ``tables`` does, also for columns or labels that no file has."""
    layout = _layout(folder)
    rows = _ordered([row for path in _files(folder) for row in read_results(path)], layout, folder)
    columns = list(_columns(rows, layout, folder))
    lines = [f"### {layout.title or folder.name}", ""]
    lines += [f"| | {' | '.join(_heading(rows, key) for key in columns)} |", "|---" + "|---:" * len(columns) + "|"]
    lines += [f"| {cell(row.label)} | {' | '.join(_shown(row, key, layout) for key in columns)} |" for row in rows]
    lines += ["", *_footnotes(rows, layout)]
    return "\n".join(lines) + "\n"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if path.name != LAYOUT_FILE)


def _layout(folder: Path) -> Layout:
    path = folder / LAYOUT_FILE
    if not path.exists():
        return Layout()
    try:
        return Layout.model_validate(load_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError("wrong_schema", f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _ordered(rows: Sequence[Evaluation], layout: Layout, folder: Path) -> list[Evaluation]:
    if layout.order is None:
        return list(rows)
    by_label = {row.label: row for row in rows}
    if unknown := [label for label in layout.order if label not in by_label]:
        raise DataError("wrong_schema", f"{folder / LAYOUT_FILE}: order: no result is called {unknown[0]!r}")
    return [by_label[label] for label in layout.order]


def _columns(rows: Sequence[Evaluation], layout: Layout, folder: Path) -> Iterator[Key]:
    """The numbers that the columns name, under every scorer that gives them."""
    present = dict.fromkeys((m.name, m.scorer) for row in rows for m in row.measurements)
    chosen = "columns" in layout.model_fields_set
    for column in layout.columns:
        name, _, scorer = column.partition("@")
        keys = [key for key in present if key[0] == name and scorer in ("", key[1])]
        if chosen and not keys:
            raise DataError("wrong_schema", f"{folder / LAYOUT_FILE}: columns: no result has {column!r}")
        yield from keys


def _find(row: Evaluation, key: Key) -> Measurement | None:
    return next((m for m in row.measurements if (m.name, m.scorer) == key), None)


def _heading(rows: Sequence[Evaluation], key: Key) -> str:
    scale = next(found.table_scale for row in rows if (found := _find(row, key)))
    several = len({m.scorer for row in rows for m in row.measurements if m.scorer}) > 1
    return heading_of(key[0], scale) + (f" ({key[1]})" if several and key[1] else "")


def _shown(row: Evaluation, key: Key, layout: Layout) -> str:
    measurement = _find(row, key)
    if measurement is None:
        return ""
    estimate = row.estimate(measurement)
    difference = estimate.difference if estimate else None
    number = row.show(measurement) if layout.intervals else show(measurement.value, measurement.table_scale)
    return number + ("*" if difference and difference.p < _SIGNIFICANT else "")


def _footnotes(rows: Sequence[Evaluation], layout: Layout) -> Iterator[str]:
    """What all rows share, and what the marks mean."""
    shared: dict[str, Any] = {}
    for name in _CONDITIONS:
        values = [row.context.get(name) for row in rows]
        if values[0] is not None and all(value == values[0] for value in values):
            shared[name] = values[0]
    scorers = sorted({m.scorer for row in rows for m in row.measurements if m.scorer})
    parts = [f"{name} {value if isinstance(value, str) else cell(value)}" for name, value in shared.items()]
    yield "; ".join(parts + ([f"scorers {', '.join(scorers)}"] if scorers else [])) + "."
    if any(row.estimates for row in rows):
        brackets = "In brackets: 95 % intervals over images; " if layout.intervals else ""
        yield f"{brackets}*: p < {_SIGNIFICANT} against {_base_of(rows)}, not corrected for the number of tests."


def _base_of(rows: Sequence[Evaluation]) -> str:
    names = {e.difference.to for row in rows for e in row.estimates.values() if e.difference}
    return names.pop() if len(names) == 1 else "the row it was compared with"


if __name__ == "__main__":
    run(print_tables)
