"""Words of ``limner caption`` that go with others only, and what standard output is called."""

import json
from pathlib import Path

import pytest

from models.errors import CheckpointError
from serving.folders.job import FolderJob
from tests.serving.folders.support import limner, write_pictures

NAMES = [f"{number:02d}.png" for number in range(3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures", *NAMES)


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads a model fails."""

    def load(self: FolderJob) -> None:
        raise CheckpointError("missing_file", "a model was loaded")

    monkeypatch.setattr(FolderJob, "load", load)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["{tmp}/pictures", "-0"], "--null is of the list that - reads"),
        (["{tmp}/pictures", "--actors", "2"], "only with --ray"),
        (["{tmp}/pictures", "--gpus-per-actor", "0.5"], "only with --ray"),
        (["{tmp}/pictures", "--ray", "--workers", "2"], "--workers: not with --ray"),
        (["{tmp}/pictures", "--existing", "append"], "--existing append: lines on standard output have none"),
        (["{tmp}/pictures", "--json", "--out", "{tmp}/x.csv"], "--json, but the name '{tmp}/x.csv' tells csv"),
        (["{tmp}/pictures", "--json", "--out", "{tmp}/metadata.jsonl"], "metadata.jsonl' tells metadata"),
        (["{tmp}/pictures", "--out", "-", "--format", "csv"], "--out -: standard output takes text, or JSON lines"),
        (["{tmp}/pictures", "--out", "-", "--format", "txt"], "--out -: standard output takes text, or JSON lines"),
        (["{tmp}/pictures", "--out", "{tmp}/pictures/00.png", "--format", "csv"], "00.png' is named like a picture"),
        (["{tmp}/pictures", "--out", "{tmp}/c.txt", "--format", "txt"], "c.txt' is named like a file, and"),
        (["{tmp}/pictures", "--out", "{tmp}/c.tar", "--format", "webdataset"], "c.tar' is named like a file"),
        (["{tmp}/pictures", "--compare", "fake,fake", "--json", "--descriptiveness", "1"], "compare: each arm says"),
    ],
)
def test_words_that_do_nothing_here_are_refused(
    folder: Path, tmp_path: Path, no_model: None, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert limner(*(word.format(tmp=tmp_path) for word in words)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert why.format(tmp=tmp_path) in line
    assert {path.name for path in tmp_path.iterdir()} == {"pictures"}


@pytest.mark.parametrize(("words", "json_lines"), [([], False), (["--json"], True), (["--format", "jsonl"], True)])
def test_standard_output_has_a_name(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    words: list[str],
    json_lines: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert limner(folder, "--out", "-", *words) == 0
    found = capsysbinary.readouterr().out.splitlines()
    if json_lines:
        assert [json.loads(line)["file_name"] for line in found] == NAMES
    else:
        assert [line.split(b"\t")[0].decode() for line in found] == NAMES
    assert not (tmp_path / "-").exists()
