"""``limner evaluate`` through typer."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from models.errors import RequestError
from tests.models.mixing.tiny_dial import write_dial
from tests.tiny_scorer import write_tiny_scorer
from tests.training.evaluation.support import write_splits
from training.cli import evaluate


def run(*arguments: object) -> str:
    """stdout of the command."""
    app = typer.Typer()
    app.command()(evaluate)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def data(tmp_path: Path) -> list[object]:
    options = write_splits(tmp_path).options
    return [
        *("--data", options["path"], "--images-root", options["images_root"]),
        *("--device", "cpu", "--threads", 1, "--tokenizer", "python"),
    ]


@pytest.fixture
def scorer(tmp_path: Path) -> str:
    return f"local-dir:{write_tiny_scorer(tmp_path / 'tiny')}"


def write_human(folder: Path) -> Path:
    path = folder / "human.json"
    captions = ["a red picture", "all is green", "blue", "a grey picture on a wall"]
    path.write_text(json.dumps([{"image_id": n, "caption": c} for n, c in enumerate(captions)]), encoding="utf-8")
    return path


def test_a_captioner_with_every_kind_of_argument(tmp_path: Path, data: list[object], scorer: str) -> None:
    out = tmp_path / "out"
    printed = run(
        "fake",
        *data,
        *("--decode", "beam", "--option", "beams=2", "--option", "max_tokens=4", "--guidance", 1, "--num-captions", 2),
        *("--metric", "length", "--metric", "self_retrieval", "--metric", '{"name": "div", "options": {"best": 2}}'),
        *("--scorer", scorer, "--distractors", "train", "--label", "unreal"),
        *("--limit", 3, "--batch-size", 2, "--data-option", "on_missing=skip", "--out", out),
    )
    assert printed == (out / "evaluation.md").read_text(encoding="utf-8")
    body = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))
    assert (body["label"], body["model"], body["images"], body["num_captions"]) == ("unreal", "fake", 3, 2)
    assert body["decode"]["options"]["beams"] == 2
    assert [m["name"] for m in body["measurements"]][:2] == ["mean_words", "r_at_1"]
    assert len((out / "captions.jsonl").read_text(encoding="utf-8").splitlines()) == 3


def test_captions_in_a_file(tmp_path: Path, data: list[object]) -> None:
    path = write_human(tmp_path)
    printed = run("--captions", path, *data, "--metric", "length")
    assert printed.startswith("# Evaluation of human\n")
    assert "| mean_words | 3.25 |" in printed
    assert run(path, *data, "--metric", "length") == printed  # a model that is a file is captions


def test_a_comparison_writes_tables_and_a_plot(tmp_path: Path, data: list[object], scorer: str) -> None:
    out = tmp_path / "out"
    printed = run("--compare", "fake", write_human(tmp_path), *data, "--scorer", scorer, "--out", out)
    assert printed == (out / "comparison.md").read_text(encoding="utf-8")
    assert printed.startswith("# Comparison of fake, human\n")
    assert {path.name for path in out.iterdir()} == {
        *("comparison.json", "comparison.md", "trade_off.png", "trade_off.json", "0-fake", "1-human")
    }
    again = run("--compare", "fake", tmp_path / "human.json", *data, "--scorer", scorer)
    assert again == printed


def test_a_comparison_without_a_scorer_has_no_plot(tmp_path: Path, data: list[object]) -> None:
    run("--compare", "fake", "--captions", write_human(tmp_path), *data, "--out", tmp_path / "out")
    assert not (tmp_path / "out" / "trade_off.png").exists()


def test_a_scorer_gets_its_retrieval_measured(data: list[object], scorer: str) -> None:
    assert "| r_at_5 x100 | 100.00 | tiny |" in run(scorer, *data)


def test_a_point_of_a_spectrum(tmp_path: Path, data: list[object]) -> None:
    root = write_dial(tmp_path / "models")
    common = [*data, "--metric", "length", "--models-dir", root, "--decode", "greedy"]
    run("dial", *common, "--descriptiveness", 0.52, "--out", tmp_path / "dial")
    run("smile", *common, "--out", tmp_path / "smile")
    body = json.loads((tmp_path / "dial" / "evaluation.json").read_text(encoding="utf-8"))
    assert body["descriptiveness"] == 0.5
    files = [(tmp_path / name / "captions.jsonl").read_text(encoding="utf-8") for name in ("dial", "smile")]
    assert files[0] == files[1]
    both = run("--compare", "dial", write_human(tmp_path), *common, "--descriptiveness", 1)
    assert "| descriptiveness | 1.0 |" in both or "dial: descriptiveness | 1.0 |" in both
    with pytest.raises(RequestError, match="descriptiveness 1.5 is not from 0 to 1"):
        run("dial", *common, "--descriptiveness", 1.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "0 models are given"),
        (["fake", "fake"], "several with --compare"),
        (["--compare", "fake"], "at least two"),
        (["fake", "--label", "a", "--label", "b"], "2 labels for 1 models"),
        (["--compare", "fake", "fake", "--update-card"], "--update-card is for"),
        (["fake", "--metric", "{length}"], "is not JSON"),
        (["fake", "--num-captions", "0"], "num_captions must be at least 1"),
        (["fake", "--descriptiveness", "0.5"], "model 'fake' has no spectrum"),
        (["fake", "--descriptiveness", "0.5", "--update-card"], "limner models calibrate"),
        (["scorer", "--descriptiveness", "0.5"], "--descriptiveness is about captioners"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(data: list[object], arguments: list[str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        run(*arguments, *data)
