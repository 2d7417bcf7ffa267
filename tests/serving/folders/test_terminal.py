"""Rows on standard output, and what becomes of them where whoever starts the program closes its streams."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.folders.support import json_rows, limner, write_pictures

ROOT = Path(__file__).resolve().parents[3]


def started(closed: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """``limner caption`` as a shell starts it, with redirections."""
    program = [sys.executable, "-m", "models.cli", "caption", *map(str, words), "--model", "fake", "--device", "cpu"]
    shell = ["sh", "-c", f'exec "$0" "$@" {closed}', *program]
    return subprocess.run(shell, capture_output=True, text=True, cwd=ROOT, check=False)


def test_a_row_for_each_picture_failures_in_json_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path, "a.png")
    (tmp_path / "b.png").write_bytes(b"<html>")
    assert limner(tmp_path) == 1
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["a.png"]
    assert limner(tmp_path, "--json") == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["file_name"], bool(row["error"])) for row in rows] == [("a.png", False), ("b.png", True)]


def test_a_closed_standard_output_is_told_as_a_full_disk_is(tmp_path: Path) -> None:
    done = started(">&-", write_pictures(tmp_path, "a.png"))
    assert (done.returncode, done.stderr) == (1, "error: standard output: it is closed\n")


def test_a_closed_standard_input_is_refused() -> None:
    done = started("<&-", "-", "--json")
    why = "error: invalid_request: '-' is standard input, which is closed: give it a list\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", why)


def test_a_file_is_written_with_all_streams_closed(tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures", "a.png")
    (tmp_path / "pictures" / "b.png").write_bytes(b"<html>")
    done = started("<&- >&- 2>&-", tmp_path / "pictures", "--out", tmp_path / "x.jsonl")
    assert done.returncode == 1
    assert [row["file_name"] for row in json_rows(tmp_path / "x.jsonl")] == ["a.png", "b.png"]
