"""One table for all pictures, a row per caption: CSV for spreadsheets, Parquet for data tools."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from models.errors import MissingDependencyError, RequestError
from serving.folders.outputs import Row
from serving.folders.pictures import Picture
from serving.folders.whole_files import WholeFile, name_in_file, text_in_file

_TEXT, _REAL, _WHOLE, _YES_OR_NO = "string", "float64", "int64", "bool_"
COLUMNS = {
    "file_name": _TEXT,
    "caption": _TEXT,
    "rank": _WHOLE,
    "clip_score": _REAL,
    "scorer": _TEXT,
    "logprob": _REAL,
    "tokens": _WHOLE,
    "finish_reason": _TEXT,
    "descriptiveness": _REAL,
    "fallback": _YES_OR_NO,
    "model": _TEXT,
    "notes": _TEXT,
    "error_code": _TEXT,
    "error_detail": _TEXT,
}
"""Name -> its type, as a function of pyarrow.

``rank`` is the place of a caption among those of its picture, from 0; a picture that failed
has one row, without a caption."""

_ROWS_AT_ONCE = 10_000


def flat(row: Row) -> list[dict[str, Any]]:
    """A row of JSON lines as rows of the table."""
    error = row["error"] or {}
    shared = {
        "file_name": name_in_file(row["file_name"]),
        **{name: row[name] for name in ("descriptiveness", "fallback", "model")},
        "notes": "; ".join(row["notes"]),
        "error_code": error.get("code"),
        "error_detail": error.get("detail") and text_in_file(error["detail"]),
    }
    empty: dict[str, Any] = dict.fromkeys(COLUMNS)
    if not row["captions"]:
        return [empty | shared]
    names = ("clip_score", "scorer", "logprob", "tokens", "finish_reason")
    return [
        empty | shared | {"caption": caption["text"], "rank": rank} | {name: caption[name] for name in names}
        for rank, caption in enumerate(row["captions"])
    ]


class Csv(WholeFile):
    """UTF-8, commas, a header."""

    def earlier_names(self) -> Iterator[str]:
        yield from (row["file_name"] for row in self._earlier())

    def make(self, place: Path, rows: Iterable[Row], pictures: Iterable[Picture]) -> None:
        with place.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", quoting=csv.QUOTE_ALL)  # else a lone \r is not
            writer.writeheader()
            if self.keeps_earlier:
                writer.writerows(self._earlier())
            for row in rows:
                writer.writerows(flat(row))

    def _earlier(self) -> Iterator[dict[str, str]]:
        """Rows with captions of the file that is there."""
        try:
            with self.place.path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.DictReader(file)
                if reader.fieldnames is not None and list(reader.fieldnames) != list(COLUMNS):
                    raise ValueError("other columns")
                for row in reader:
                    if None in row:  # what lies beyond the last column
                        raise ValueError(f"line {reader.line_num} has more columns")
                    if row["file_name"] and (row["caption"] or "").strip():
                        yield row
        except (ValueError, csv.Error, KeyError) as error:
            raise _something_else(self.place.path, error) from error


class Parquet(WholeFile):
    """Columns with types, compressed."""

    def check(self) -> None:
        _pyarrow()

    def earlier_names(self) -> Iterator[str]:
        for batch in self._earlier():
            yield from batch.column("file_name").to_pylist()

    def make(self, place: Path, rows: Iterable[Row], pictures: Iterable[Picture]) -> None:
        arrow, parquet = _pyarrow()
        schema = _schema(arrow)
        with parquet.ParquetWriter(place, schema) as writer:
            for batch in self._earlier() if self.keeps_earlier else ():
                writer.write_batch(batch)
            waiting: list[dict[str, Any]] = []
            for row in rows:
                waiting += flat(row)
                if len(waiting) >= _ROWS_AT_ONCE:
                    writer.write_batch(arrow.RecordBatch.from_pylist(waiting, schema=schema))
                    waiting = []
            if waiting:
                writer.write_batch(arrow.RecordBatch.from_pylist(waiting, schema=schema))

    def _earlier(self) -> Iterator[Any]:
        arrow, parquet = _pyarrow()
        try:
            with parquet.ParquetFile(self.place.path) as file:
                if file.schema_arrow.names != list(COLUMNS):
                    raise ValueError("other columns")
                for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                    yield batch.filter(batch.column("error_code").is_null()).cast(_schema(arrow))
        except (ValueError, OSError, arrow.ArrowException) as error:  # OSError is how pyarrow tells of damage, too
            raise _something_else(self.place.path, error) from error


def _schema(arrow: Any) -> Any:
    return arrow.schema([(name, getattr(arrow, kind)()) for name, kind in COLUMNS.items()])


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        detail = "parquet needs pyarrow: pip install 'limner[data]'"
        raise MissingDependencyError("missing_dependency", detail) from error
    return pyarrow, pyarrow.parquet


def _something_else(path: Path, error: Exception) -> RequestError:
    detail = f"{str(path)!r} holds something other than captions ({error}): name another file, or --existing overwrite"
    return RequestError("invalid_request", detail)
