"""``limner evaluate`` through typer."""

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from tests.tiny_scorer import write_tiny_scorer
from tests.training.support import write_dataset
from training.cli import evaluate


def run(*arguments: object) -> str:
    """stdout of the command."""
    app = typer.Typer()
    app.command()(evaluate)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def data_arguments(folder: Path) -> list[object]:
    options = write_dataset(folder)
    return ["--data", options["path"], "--images-root", options["images_root"], "--device", "cpu", "--threads", 1]


def test_a_captioner_with_every_kind_of_argument(tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed = run(
        "fake",
        *data_arguments(tmp_path),
        *("--decode", "beam", "--option", "beams=2", "--option", "max_tokens=4"),
        *("--metric", "length", "--metric", "self_retrieval"),
        *("--scorer", f"local-dir:{write_tiny_scorer(tmp_path / 'tiny')}"),
        *("--limit", 3, "--batch-size", 2, "--data-option", "on_missing=skip", "--out", out),
    )
    assert printed == (out / "evaluation.md").read_text(encoding="utf-8")
    body = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))
    assert body["images"] == 3
    assert body["decode"]["options"]["beams"] == 2
    assert [m["name"] for m in body["measurements"]][:2] == ["mean_words", "r_at_1"]
    assert len((out / "captions.jsonl").read_text(encoding="utf-8").splitlines()) == 3


def test_a_scorer_gets_its_retrieval_measured(tmp_path: Path) -> None:
    scorer = write_tiny_scorer(tmp_path / "tiny")
    printed = run(f"local-dir:{scorer}", *data_arguments(tmp_path))
    assert "| r_at_5 x100 | 100.00 | tiny |" in printed
