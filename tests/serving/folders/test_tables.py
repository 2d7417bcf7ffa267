"""CSV and Parquet: what the usual readers get back, what a second run adds, what a killed one leaves."""

import csv
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from models.errors import RequestError
from serving.folders.outputs import Existing
from serving.folders.tables import COLUMNS
from tests.serving.folders.support import listed, row, write_out, write_pictures

KINDS = ("csv", "parquet")


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return [{key: value or None for key, value in line.items()} for line in csv.DictReader(file)]
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    return rows


def told(path: Path) -> list[tuple[Any, ...]]:
    return [(line["file_name"], line["caption"], line["error_code"]) for line in read(path)]


@pytest.fixture(params=KINDS)
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"captions.{request.param}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures", "a.png", "b.png", "c.png")


def write(out: Path, folder: Path, *rows: dict[str, Any], **options: Any) -> list[str]:
    """The names that the run found to do."""
    found = [picture for picture in listed(folder) if picture.name in {row["file_name"] for row in rows}]
    written = write_out(out.suffix[1:], out, found, rows, **options)
    return [each["file_name"] for each in written]


def test_a_row_for_each_caption_and_each_failure(out: Path, folder: Path) -> None:
    scored = row("a.png", 'one, "two"\nthree', "ünï \U0001f431", descriptiveness=0.25, notes=["first of 2 frames", "x"])
    scored["captions"][1] |= {"clip_score": 0.5, "scorer": "tiny"}
    write(out, folder, scored, row("b.png", error="truncated"), row("c.png", "four", fallback=True))
    first, second, failed, last = read(out)
    assert list(first) == list(COLUMNS)
    assert (first["caption"], second["caption"], last["caption"]) == ('one, "two"\nthree', "ünï \U0001f431", "four")
    assert (second["scorer"], float(second["clip_score"]), first["clip_score"]) == ("tiny", 0.5, None)
    assert [int(each["rank"]) for each in (first, second, last)] == [0, 1, 0]
    assert (float(first["descriptiveness"]), first["notes"]) == (0.25, "first of 2 frames; x")
    assert [str(each["fallback"]) for each in (first, last)] == ["False", "True"]
    assert (failed["error_code"], failed["error_detail"], failed["caption"]) == ("truncated", "'b.png' failed", None)
    assert {path.name for path in out.parent.iterdir()} == {out.name, "pictures"}


def test_a_second_run_adds_what_is_not_there(out: Path, folder: Path) -> None:
    assert write(out, folder, row("a.png", "one"), row("b.png", error="truncated")) == ["a.png", "b.png"]
    rows = [row("a.png", "never used"), row("b.png", "two"), row("c.png", "three", "four")]
    assert write(out, folder, *rows) == ["b.png", "c.png"]
    expected = [("a.png", "one", None), ("b.png", "two", None), ("c.png", "three", None), ("c.png", "four", None)]
    assert told(out) == expected
    assert write(out, folder, *rows) == []
    assert told(out) == expected


def test_overwrite_begins_anew(out: Path, folder: Path) -> None:
    write(out, folder, row("a.png", "one"), row("b.png", "two"))
    assert write(out, folder, row("a.png", "new"), existing=Existing.OVERWRITE) == ["a.png"]
    assert told(out) == [("a.png", "new", None)]


def test_a_killed_run_goes_on_and_leaves_what_was_there(out: Path, folder: Path) -> None:
    write(out, folder, row("a.png", "one"))
    before = out.read_bytes()
    write(out, folder, row("b.png", "two"), killed=True)
    assert out.read_bytes() == before
    rows = [row("b.png", "never used"), row("c.png", "three")]
    assert write(out, folder, *rows, go_on=True) == ["c.png"]
    assert told(out) == [("a.png", "one", None), ("b.png", "two", None), ("c.png", "three", None)]


@pytest.mark.parametrize("existing", [Existing.SKIP, Existing.OVERWRITE])
def test_killed_just_after_the_file_was_made(
    out: Path, folder: Path, existing: Existing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is still there: its rows are in the file once."""
    with monkeypatch.context() as patch:
        patch.setattr("serving.folders.journal.Journal.remove", lambda self: self.close())
        write(out, folder, row("a.png", "one"), row("b.png", "two"), existing=existing)
    assert (out.parent / f".{out.name}.limner-journal").exists()
    assert write(out, folder, row("a.png", "x"), row("c.png", "three"), existing=existing, go_on=True) == ["c.png"]
    assert told(out) == [("a.png", "one", None), ("b.png", "two", None), ("c.png", "three", None)]


def test_names_that_are_no_unicode_are_written_readably(out: Path, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures", b"no \xff.png", "e\u0301 \U0001f431\n.png")
    names = [picture.name for picture in listed(folder)]
    write(out, folder, *(row(name, "x") for name in names))
    assert {line["file_name"] for line in read(out)} == {"no \\xff.png", "e\u0301 \U0001f431\n.png"}
    assert write(out, folder, *(row(name, "x") for name in names)) == []


def test_half_a_surrogate_in_a_list_is_a_failure_that_can_be_written(out: Path, tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text('{"file_name": "half \\\\ud83d.png"}'.replace("\\\\", "\\"))
    found = listed(tmp_path / "list.jsonl")
    write_out(out.suffix[1:], out, found, [row(found[0].name, error="unreadable")])
    assert [line["error_code"] for line in read(out)] == ["unreadable"]


def test_a_picture_that_is_named_twice_is_there_once(out: Path, folder: Path) -> None:
    write_out(out.suffix[1:], out, listed(folder) * 2, [row(f"{name}.png", "x") for name in "abc"])
    assert len(read(out)) == 3


def test_a_file_of_something_else_is_refused_and_untouched(out: Path, folder: Path) -> None:
    for content in (b"file_name,text\na.png,one\n", "ä".encode("utf-16"), b"\x89PNG\r\n\x1a\n\0\0PAR1", b"PAR1\0PAR1"):
        out.write_bytes(content)
        with pytest.raises(RequestError, match="holds something other than captions .*: name another file, or --exist"):
            write(out, folder, row("a.png", "one"))
        assert out.read_bytes() == content
    write(out, folder, row("a.png", "one"), existing=Existing.OVERWRITE)
    assert len(read(out)) == 1


def test_a_table_that_somebody_added_a_column_to(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "captions.csv"
    write(out, folder, row("a.png", "one"))
    with out.open("a") as file:
        file.write("b.png,two" + "," * len(COLUMNS) + "mine\n")
    with pytest.raises(RequestError, match=r"holds something other than captions \(line 3 has more columns\)"):
        write(out, folder, row("c.png", "three"))


def test_a_damaged_table_is_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "captions.parquet"
    write(out, folder, *(row(f"{name}.png", "one") for name in "abc"))
    whole = out.read_bytes()
    for damaged in (whole[:-20], whole[:4] + b"\xff" * 200 + whole[204:], b""):
        out.write_bytes(damaged)
        with pytest.raises(RequestError, match="holds something other than captions"):
            write(out, folder, row("c.png", "three"))


def test_a_place_that_cannot_be_written(out: Path, folder: Path) -> None:
    out.mkdir()
    with pytest.raises(RequestError, match="is a folder: name a file in it"):
        write(out, folder, row("a.png", "one"))
    with pytest.raises(RequestError, match="cannot be written: there is no folder"):
        write(out.with_name("nowhere") / out.name, folder, row("a.png", "one"))


def test_many_rows(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.folders.tables._ROWS_AT_ONCE", 7)
    folder = write_pictures(tmp_path / "pictures", *(f"{number:02d}.png" for number in range(30)))
    write(out, folder, *(row(f"{number:02d}.png", "x", "y") for number in range(20)))
    write(out, folder, *(row(f"{number:02d}.png", "x", "y") for number in range(30)))
    assert [line["file_name"] for line in read(out)] == [f"{number:02d}.png" for number in range(30) for _ in "xy"]
