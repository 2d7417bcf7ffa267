"""Files that are whole or absent, also where a link leads to them."""

from pathlib import Path

import pytest

from serving.folders.unfinished import whole
from tests.serving.folders.support import limner, write_pictures

NAMES = [f"{number:02d}.png" for number in range(12)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures", *NAMES)


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    with pytest.raises(ZeroDivisionError), whole(tmp_path / "file") as other:
        other.write_text("half")
        raise ZeroDivisionError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "before")]


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "metadata.jsonl"])
def test_an_output_that_is_a_link_stays_one(folder: Path, tmp_path: Path, name: str) -> None:
    for place in ("there", "here"):
        (tmp_path / place).mkdir()
    link, file = tmp_path / "here" / name, tmp_path / "there" / "captions"
    link.symlink_to("../there/captions")  # which is not there yet
    words = [folder, "--out", link, "--workers", "0"]
    assert limner(*words) == 0
    before = file.read_bytes()
    assert before.count(b"\n") >= 12 and link.is_symlink()
    (folder / "broken.png").write_bytes(b"<html>")
    assert [limner(*words) for _ in range(2)] == [1, 1]  # the second finds a failure to take out
    assert link.is_symlink() and set(before.splitlines()) <= set(file.read_bytes().splitlines())
    assert {path.name for path in file.parent.iterdir()} == {"captions"}
    (tmp_path / "there" / "captions").unlink()
    (tmp_path / "there").rmdir()
    assert limner(*words) == 2
