"""``limner data check`` through the command table."""

import json
from pathlib import Path

import pytest

from models import cli
from models.errors import RequestError
from tests.training.data.tiny import WRITERS, picture
from training.cli_data import nested


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    code = cli.run(["data", "check", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_clean_data_by_the_options_of_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = WRITERS["karpathy"](tmp_path)
    code, out, err = run(capsys, "--data", options["path"], "--images-root", options["images_root"], "--images")
    assert (code, err) == (0, "")
    assert out.splitlines()[-2:] == ["pictures decoded: 3", "defects: none"]


def test_a_file_for_each_split_by_dotted_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = WRITERS["tsv"](tmp_path)
    words = [f"path.{split}={path}" for split, path in options["path"].items()]
    code, out, _ = run(capsys, "--format", "tsv", *words, f"images_root={tmp_path}", "--json")
    body = json.loads(out)
    assert code == 0 and body["clean"] is True
    assert {split: facts["images"] for split, facts in body["splits"].items()} == {"train": 2, "val": 1}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_defects_are_exit_code_1_and_any_name_can_be_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    rows = [{"file_name": name, "text": "a cat"} for name in ("a.png", "\ud83d.png", "new\nline.png")]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    code, out, err = run(capsys, "--format", "imagefolder", "--data", tmp_path, *form)
    assert (code, err) == (1, "")
    assert "line 2" in out and "\\ud83d.png" in out and "new\\nline.png" in out
    out.encode()


def test_an_unreadable_picture_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = WRITERS["karpathy"](tmp_path)
    (tmp_path / "red.png").write_bytes(b"no picture")
    arguments = ["--data", options["path"], "--images-root", options["images_root"]]
    assert run(capsys, *arguments)[0] == 0
    code, out, _ = run(capsys, *arguments, "--images")
    assert code == 1 and "unreadable: " in out and "red.png" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "bogus"], "no data format named 'bogus'; there are: coco, imagefolder, karpathy"),
        (["--format", "tsv"], "path: is required"),
        (["path=x", "images_root=y", "bogus=1"], "bogus"),
        (["word"], "'word' is not key=value"),
        (["--data", "x", "path=y"], "option 'path' is given twice"),
        (["--data", "gone.json", "--images-root", "."], "cannot read gone.json"),
    ],
)
def test_unusable_arguments_are_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert says in err and err.count("\n") == 1


def test_dotted_words() -> None:
    assert nested({"path.train": 1, "path.val": 2, "x": 3}, {"y": 4}) == {
        "path": {"train": 1, "val": 2},
        "x": 3,
        "y": 4,
    }
    for words in ({"path.train": 1, "path": 2}, {"path": 2, "path.train": 1}):
        with pytest.raises(RequestError, match="given twice"):
            nested(words, {})
