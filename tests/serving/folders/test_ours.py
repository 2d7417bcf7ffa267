"""What earlier runs wrote among the pictures is not told."""

from pathlib import Path

import pytest

from serving.folders.ours import Ours, ours
from serving.folders.outputs import Destination
from serving.folders.sources import Sources
from tests.serving.folders.support import limner, write_pictures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pictures(tmp_path, "a.png", "b.jpg", "b.png", "sub/c.png")
    (tmp_path / "notes.txt").write_text("of somebody")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["--out", "{folder}/x.csv"],
        ["--out", "{folder}/x.jsonl"],
        ["--format", "metadata"],
        ["--format", "txt"],
        ["--format", "caption"],
        ["--format", "txt", "--out", "{folder}/captions"],
        ["--format", "webdataset", "--out", "{folder}"],
    ],
)
def test_a_run_and_the_same_again(folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    asked = [folder, "-r", "--workers", "0", *(word.format(folder=folder) for word in words)]
    assert limner(*asked) == 0
    assert "4 captioned; 0 failed; left out: 1 not a picture (" in capsys.readouterr().err
    assert limner(*asked) == 0
    again = capsys.readouterr().err
    assert "0 captioned; 0 failed; 4 done before" in again
    assert "left out: 1 not a picture (" in again


def test_outputs_of_other_runs_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--format", "txt"], ["--out", folder / "x.csv"], ["--out", folder / "y.jsonl"]):
        assert limner(folder, "--workers", "0", *words) == 0
        assert "left out: 1 folder, 1 not a picture (" in capsys.readouterr().err


def test_files_of_these_names_elsewhere_are_not_ours(folder: Path) -> None:
    for name in ("run.json", "x.csv", "00000.tar", "c.txt"):
        (folder / "sub" / name).write_text("of somebody")
    sources = Sources([str(folder)], recursive=True, ours=ours("jsonl", Destination(folder / "x.csv")))
    left = {"sub/run.json", "sub/x.csv", "sub/00000.tar", "sub/c.txt", "notes.txt"}
    assert {picture.name for picture in sources if not picture.named} == left
    assert Ours().among(str(folder), ["run.json"]) == set()
