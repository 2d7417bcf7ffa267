"""Which format goes where: by name, by suffix, or beside the pictures."""

import os
from pathlib import Path

import pytest

from models.errors import RequestError, UnknownNameError
from serving.folders.outputs import (
    ADDS_TO_CAPTIONS,
    FORMATS,
    OF_MANY_FILES,
    SHARED,
    Destination,
    Existing,
    destination,
    format_of,
    open_output,
)
from tests.serving.folders.support import ending, json_rows, listed, row, write_out, write_pictures


@pytest.mark.parametrize(
    ("name", "out", "expected"),
    [
        (None, None, None),
        ("csv", None, "csv"),
        ("csv", "x.jsonl", "csv"),
        (None, "x.jsonl", "jsonl"),
        (None, "X.CSV", "csv"),
        (None, "x.parquet", "parquet"),
        (None, "sub/metadata.jsonl", "metadata"),
        ("jsonl", "metadata.jsonl", "jsonl"),
    ],
)
def test_the_format_that_was_asked_for(name: str | None, out: str | None, expected: str | None) -> None:
    assert format_of(name, None if out is None else Path(out)) == expected


def test_a_format_that_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="does not tell the format: add --format, one of jsonl, txt, caption, csv"):
        format_of(None, Path("x.txt"))
    with pytest.raises(RequestError, match="is a folder: .* add --format, one of caption, txt, webdataset"):
        format_of(None, tmp_path)
    with pytest.raises(UnknownNameError, match="xlsx"):
        format_of("xlsx", Path("x.csv"))


def test_where_captions_go_by_default(tmp_path: Path) -> None:
    write_pictures(tmp_path, "a.png", "a.tar")
    folder, picture = str(tmp_path), str(tmp_path / "a.png")
    assert destination("txt", None, [folder], Existing.APPEND) == Destination(tmp_path, Existing.APPEND)
    assert destination("caption", None, [picture, "elsewhere"], Existing.SKIP) == Destination(tmp_path)
    assert destination("txt", None, ["-"], Existing.SKIP) == Destination(Path("."))
    assert destination("txt", Path("out"), [folder], Existing.SKIP) == Destination(Path("out"), apart=True)
    assert destination("metadata", None, [folder], Existing.SKIP) == Destination(tmp_path / "metadata.jsonl")
    for kind, paths in {"csv": [folder], "metadata": [picture], "webdataset": [folder]}.items():
        with pytest.raises(RequestError, match=f"--format {kind} needs --out"):
            destination(kind, None, paths, Existing.SKIP)
    with pytest.raises(RequestError, match="--format txt of the archive '.*a.tar' needs --out, a folder"):
        destination("txt", None, [folder, str(tmp_path / "a.tar")], Existing.SKIP)


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_append_and_prepend_are_of_sidecars(kind: str) -> None:
    if kind in ADDS_TO_CAPTIONS:
        destination(kind, Path("x"), ["y"], Existing.PREPEND)
    else:
        with pytest.raises(RequestError, match=f"--existing append: of caption and txt only, not of {kind}"):
            destination(kind, Path("x"), ["y"], Existing.APPEND)


def test_the_tables_name_formats_that_there_are() -> None:
    assert (OF_MANY_FILES | SHARED | ADDS_TO_CAPTIONS) <= set(FORMATS)


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_each_format_keeps_the_promises_of_an_output(kind: str, tmp_path: Path) -> None:
    """Done is what was written whole; failures come again; no file of the run's own is left behind."""
    source = write_pictures(tmp_path / "pictures", "a.png", "b.png", "c.png")
    found = listed(source)
    place, apart = tmp_path / "out" / (kind if kind in OF_MANY_FILES else f"captions.{kind}"), kind in OF_MANY_FILES
    place.parent.mkdir()
    rows = [row("a.png", "one"), row("b.png", error="truncated"), row("c.png", "three")]
    assert len(write_out(kind, place, found, rows, apart=apart)) == 3
    assert not [path.name for path in place.parent.rglob(".*")]
    output = open_output(kind, Destination(place, apart=apart))
    with ending(output):
        output.open(go_on=False)
        assert [picture.name for picture in found if not output.done(picture)] == ["b.png"]
    assert not [path.name for path in place.parent.rglob(".*")]


def test_json_lines_are_the_rows(tmp_path: Path) -> None:
    found = listed(write_pictures(tmp_path / "pictures", "a.png", b"\xff.png"))
    rows = [row(each.name, "ünï") for each in found]
    write_out("jsonl", tmp_path / "x.jsonl", found * 2, rows)
    assert json_rows(tmp_path / "x.jsonl") == rows
    assert os.fsencode(json_rows(tmp_path / "x.jsonl")[1]["file_name"]) == b"\xff.png"
    assert write_out("jsonl", tmp_path / "x.jsonl", found, rows) == []
    write_out("jsonl", tmp_path / "x.jsonl", found[:1], rows, existing=Existing.OVERWRITE)
    assert json_rows(tmp_path / "x.jsonl") == rows[:1]
    write_out("jsonl", tmp_path / "x.jsonl", found, rows, existing=Existing.OVERWRITE, go_on=True)
    assert json_rows(tmp_path / "x.jsonl") == rows
