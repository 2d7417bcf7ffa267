"""Lists, archives and pictures that the captions would be written over."""

import json
import tarfile
from pathlib import Path

import pytest

from tests.serving.folders.support import limner, write_pictures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pictures(tmp_path, "list.jpg", "b.jpg")
    (tmp_path / "list.txt").write_text("b.jpg\nlist.jpg\n")
    (tmp_path / "list.jsonl").write_text('{"file_name": "b.jpg"}\n')
    (tmp_path / "link.jsonl").symlink_to("list.jsonl")
    row = {"file_name": "b.jpg", "captions": [], "error": None}
    (tmp_path / "ours.jsonl").write_text(json.dumps(row) + "\n")
    with tarfile.open(tmp_path / "00000.tar", "w") as archive:
        archive.add(tmp_path / "b.jpg", "b.jpg")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["list.jsonl", "--out", "list.jsonl"], "'list.jsonl' is what the captions would be written to"),
        (["ours.jsonl", "--out", "./ours.jsonl"], "is what the captions would be written to"),
        (["b.jpg", "list.jsonl", "--out", "link.jsonl"], "is what the captions would be written to"),
        (["list.txt", "--out", "list.txt", "--format", "csv"], "is what the captions would be written to"),
        (["00000.tar", "--out", "00000.tar", "--format", "jsonl"], "is what the captions would be written to"),
        (["00000.tar", "--out", ".", "--format", "webdataset"], "lies where the shards would be written"),
        (["list.txt", "--format", "txt"], "'list.txt' would be the sidecar of 'list.jpg'"),
        (["list.txt", "--format", "txt", "--out", "."], "would be the sidecar of 'list.jpg'"),
        ([".", "list.txt", "--format", "txt"], "would be the sidecar of './list.jpg'"),
    ],
)
@pytest.mark.parametrize("existing", ["skip", "overwrite"])
def test_what_is_read_is_not_written_over(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    why: str,
    existing: str,
) -> None:
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert limner(*words, "--existing", existing) == 2
    assert why in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("words", [["list.txt", "--format", "caption"], ["b.jpg", "list.jsonl", "--format", "txt"]])
def test_what_is_not_written_over_may_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(folder)
    assert limner(*words, "--workers", "0") == 0
