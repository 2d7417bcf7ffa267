"""Names in formats that hold UTF-8 only."""

import csv
import os
from itertools import product
from pathlib import Path

import pytest

from serving.folders.whole_files import name_in_file
from tests.serving.folders.support import limner, listed, row, write_out, write_pictures


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"plain.png", "plain.png"),
        ("emoji \U0001f431.png".encode(), "emoji \U0001f431.png"),
        (rb"back\slash\x.png", r"back\slash\x.png"),
        (b"\xff.png", r"\xff.png"),
        (rb"\xff.png", r"\\xff.png"),
        (b"\\\xff.png", r"\\\xff.png"),
        (rb"\\xff.png", r"\\\\xff.png"),
    ],
)
def test_bytes_that_are_no_text_are_written_out(name: bytes, shown: str) -> None:
    assert name_in_file(os.fsdecode(name)) == shown


def test_no_two_names_become_one() -> None:
    pieces = (b"\\", b"\xff", b"\xe9", b"x", b"ff", b"xff", b"e9")
    names = {b"".join(parts) for length in range(1, 6) for parts in product(pieces, repeat=length)}
    assert len({name_in_file(os.fsdecode(name)) for name in names}) == len(names)


@pytest.mark.parametrize("kind", ["csv", "parquet", "metadata", "jsonl"])
def test_pictures_whose_names_look_alike_are_all_captioned(tmp_path: Path, kind: str) -> None:
    source = write_pictures(tmp_path / "pictures", b"\xff.png", rb"\xff.png", b"\xfe.png")
    out = tmp_path / f"x.{kind}"
    found = listed(source)
    assert len(write_out(kind, out, found, [row(each.name, "one") for each in found])) == 3
    assert write_out(kind, out, found, [row(each.name, "one") for each in found]) == []


def test_a_run_over_them_ends(tmp_path: Path) -> None:
    source = write_pictures(tmp_path / "pictures", b"\xff.png", rb"\xff.png")
    for _ in range(2):
        assert limner(source, "--out", tmp_path / "x.csv", "--workers", "0") == 0
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert sorted(line["file_name"] for line in csv.DictReader(file)) == [r"\\xff.png", r"\xff.png"]
