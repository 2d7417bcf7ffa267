"""``limner compare`` as people type it."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from models import cli
from models.errors import LimnerError, RequestError, UnknownNameError
from serving.cli_compare import compare
from tests.models.mixing.tiny_dial import write_dial
from tests.serving.support import png

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dial(tmp_path_factory.mktemp("models"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pictures = tmp_path / "pictures"
    (pictures / "within").mkdir(parents=True)
    (pictures / "a.png").write_bytes(png("blue"))
    (pictures / "b.png").write_bytes(png("red"))
    (pictures / "within" / "c.png").write_bytes(png("green"))
    return pictures


def run(scorer: str, *arguments: object) -> Result:
    app = typer.Typer()
    app.command()(compare)
    result = CliRunner().invoke(app, ["--device", "cpu", "--scorer", scorer, *map(str, arguments)])
    if isinstance(result.exception, LimnerError):
        raise result.exception
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit), result.exc_info
    return result


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_points_of_a_dial_on_a_folder(folder: Path, models_dir: Path, scorer: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    arms = ["--models", "smile,dial@0.52", "--arm", "far=dial@1", "--arm", "dial", "--models-dir", models_dir]
    result = run(scorer, folder, *arms, "--option", "beams=2", "-r", "--out", out)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("# Comparison of smile, dial@0.52, far, dial\n\n3 pictures, each captioned by")
    assert {path.name for path in out.iterdir()} == {"report.html", "report.md", "results.jsonl"}
    found = rows(out)
    assert [(row["file_name"], row["label"]) for row in found] == [
        (name, label) for name in ("a.png", "b.png", "within/c.png") for label in ("smile", "dial@0.52", "far", "dial")
    ]
    assert [row["model"] for row in found[:4]] == ["smile", "dial", "dial", "dial"]
    assert [row["descriptiveness"] for row in found[:4]] == [None, 0.5, 1.0, 0.25]
    assert [row["expected_words"] for row in found[:4]] == [None, 12.0, 14.0, 11.0]
    assert all(row["captions"][0]["clip_score"] is not None for row in found)
    same = [row["captions"][0] for row in found[:2]]  # the dial's middle is the direction's own model
    assert same[0]["text"] == same[1]["text"] and same[0]["clip_score"] == same[1]["clip_score"]


def test_a_real_photograph_by_the_bundled_models(scorer: str, tmp_path: Path) -> None:
    result = run(scorer, EXAMPLES, "--models", "concise,descriptive", "--out", tmp_path)
    assert result.exit_code == 0 and "| undecided |" in result.stdout  # one picture decides nothing
    concise, descriptive = rows(tmp_path)
    assert "camera" in concise["captions"][0]["text"]
    assert concise["captions"][0]["text"] != descriptive["captions"][0]["text"]
    assert "camera.jpg" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_decoding_is_that_of_all(folder: Path, scorer: str) -> None:
    words = ["--models", "fake,concise", "--decode", "beam", "--option", "beams=2", "--option", "max_tokens=9"]
    stdout = run(scorer, folder, *words).stdout
    assert stdout.count("| beam max\\_tokens=9 beams=2 |") == 2


def test_pictures_that_cannot_be_read_are_listed_and_left_out(folder: Path, scorer: str, tmp_path: Path) -> None:
    (folder / "broken.jpg").write_bytes(b"<html>")
    words = ["--models", "fake,fake", "--out", tmp_path / "out", "--show", 1]
    result = run(scorer, folder, folder / "missing.png", *words)
    assert result.exit_code == 1
    broken, missing, total = result.stderr.splitlines()
    assert broken.startswith("error: not_an_image: ") and missing.startswith("error: unreadable: ")
    assert total == "error: 2 of 4 pictures failed"
    assert "2 pictures, each captioned by every arm; 2 could not be read and are left out" in result.stdout
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert (
        f"| {folder}/broken.jpg | not_an_image |" in report.replace("\\", "")
        and "1 more are in results.jsonl" in report
    )
    codes = [row["error"] and row["error"]["code"] for row in rows(tmp_path / "out")]
    assert codes == [None] * 4 + ["not_an_image"] * 2 + ["unreadable"] * 2


def test_when_no_picture_can_be_read_there_is_no_report(scorer: str, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"")
    result = run(scorer, tmp_path, "--models", "fake,fake", "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("error: 1 of 1 pictures failed\n")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.jsonl"}


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        ([], RequestError, "name 2 to 6 models to compare: --models"),
        (["--models", "fake"], RequestError, "arms: 1 given"),
        (["--models", "fake,fake,fake,fake,fake,fake,fake"], RequestError, "arms: 7 given"),
        (["--models", "fake,"], RequestError, "arm '' is not LABEL=MODEL"),
        (["--models", "fake", "--arm", "=fake"], RequestError, "arm '=fake' is not"),
        (["--models", "fake", "--arm", "x="], RequestError, "arm 'x=' is not"),
        (["--arm", "x=fake", "--arm", "x=fake"], RequestError, "label 'x' is given twice"),
        (["--models", "fake,nope"], UnknownNameError, "no model 'nope'"),
        (["--models", "fake,fake@0.5"], RequestError, "model 'fake' has no spectrum"),
        (["--models", "fake,fake@2"], RequestError, "descriptiveness 2 of model 'fake'"),
        (["--models", "fake,fake@home"], UnknownNameError, "no model 'fake@home'"),
        (["--models", "fake,fake", "--decode", "best"], RequestError, "greedy, sample"),
        (["--models", "fake,fake", "--guidance", "2"], RequestError, "decode.guidance 2: models of the family"),
        (["--models", "fake,fake", "--scorer", "concise"], LimnerError, "concise"),
        (["--models", "fake,fake", "--out", "/proc/version/out"], RequestError, "cannot be a folder"),
    ],
)
def test_arguments_that_cannot_be_used(
    folder: Path, scorer: str, arguments: list[str], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        run(scorer, folder, *arguments)


def test_nothing_to_compare(scorer: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no pictures in"):
        run(scorer, tmp_path, "--models", "fake,fake")
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(RequestError, match="no pictures in"):
        run(scorer, tmp_path, "--models", "fake,fake", "--out", tmp_path / "out")
    with pytest.raises(RequestError, match=r"missing.png' does not exist"):
        run(scorer, tmp_path / "missing.png", "--models", "fake,fake")


def test_a_closed_standard_output_is_told_before_anything_is_computed(
    folder: Path, models_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout", None)
    words = ["compare", folder, "--models", "smile,dial", "--models-dir", models_dir, "--scorer", "none there"]
    assert cli.run([str(word) for word in words]) == 1
    assert capsys.readouterr().err == "error: standard output: it is closed\n"
