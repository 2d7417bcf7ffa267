"""Paths as lists spell them."""

import os
import unicodedata
from pathlib import Path

import pytest

from training.data.files import as_id, inside_root, picture_path, pictures_under


@pytest.mark.parametrize(
    ("on_disk", "listed"),
    [
        (unicodedata.normalize("NFD", "Mädchen.jpg"), unicodedata.normalize("NFC", "Mädchen.jpg")),
        (unicodedata.normalize("NFC", "Mädchen.jpg"), unicodedata.normalize("NFD", "Mädchen.jpg")),
        ("sub/a.jpg", "sub\\a.jpg"),
        ("sub\\a.jpg", "sub\\a.jpg"),
        ("a b?*é😀.jpg", "a b?*é😀.jpg"),
    ],
)
def test_other_spellings_of_a_name_are_found(tmp_path: Path, on_disk: str, listed: str) -> None:
    (tmp_path / on_disk).parent.mkdir(exist_ok=True)
    (tmp_path / on_disk).touch()
    found = inside_root(listed)
    assert found is not None
    assert picture_path(tmp_path, found) == tmp_path / on_disk


def test_a_name_that_is_not_there_stays_as_it_is(tmp_path: Path) -> None:
    assert picture_path(tmp_path, "é\\a.jpg") == tmp_path / "é\\a.jpg"
    assert picture_path(tmp_path, "x" * 300 + "é") == tmp_path / ("x" * 300 + "é")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        ("1", "1"),
        (" 007\n", "007"),
        (1.0, "1"),
        (2**53 + 1, str(2**53 + 1)),
        (1.5, None),
        (float(2**53), None),
        (float("nan"), None),
        (True, None),
        (None, None),
        ("", None),
        ([1], None),
        ("a\nb", "a b"),
    ],
)
def test_ids(value: object, text: str | None) -> None:
    assert as_id(value) == text


def test_a_loop_of_links_is_not_walked_for_ever(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").touch()
    os.symlink(tmp_path, tmp_path / "a" / "again")
    assert list(pictures_under(tmp_path)) == [tmp_path / "a" / "1.png"]
