"""From a plan to tables, on a tiny captioner: runs, directions, mixes, measurements; what is there is kept."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.card import MixCard, read_card
from models.errors import DataError
from tests.tiny_scorer import write_tiny_scorer
from tests.training.tiny_run import overrides, write_data
from training.evaluate import Measured, evaluate_each
from training.evaluation.settings import Subject
from training.recipe import build_task, read_recipe
from training.reproduce import reproduce
from training.tables import tables

METRICS = ["length", "content_words", "clip_score", "self_retrieval"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a plan in ``results``, its data, and a tiny captioner that its run starts from."""
    folder = tmp_path_factory.mktemp("reproduce")
    data = write_data(folder / "data")
    words = [*overrides(data), "train.epochs=1", "id=base"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        build_task(read_recipe(Path("concise_start.yaml"), words)).run(folder / "start")
        base = folder / "runs" / "mixes" / "base"  # mixes name it by its id, and look beside themselves
        base.parent.mkdir(parents=True)
        (folder / "start" / "base").rename(base)
        scorer = f"local-dir:{write_tiny_scorer(folder / 'scorer')}"
        greedy = {"name": "greedy", "options": {"max_tokens": 6}}
        settings = [
            f"data.options.path={data}",
            f"data.options.images_root={data.parent}",
            f"init={base}",
            f"select.scorer={scorer}",
            "select.decode={name: greedy, options: {max_tokens: 6}}",
            *(f"train.{word}" for word in "images_per_step=4 epochs=1 warmup_steps=1 bf16=false threads=1".split()),
        ]
        rows = {"base": {"model": str(base)}, "trained": {"run": "up"}, "twice": {"mix": {"rise": 2}}}
        plan = {
            "data": {"path": str(data), "images_root": str(data.parent)},
            "scorers": [scorer],
            "base": str(base),
            "runs": {
                "up": {"recipe": "mle.yaml", "settings": settings},
                "again": {"recipe": "mle.yaml", "settings": [*settings, "seed=1"]},
            },
            "directions": {"rise": ["up"], "other": ["up", "again"]},
            "tables": {
                "rows": {"split": "val", "rows": rows, "decode": greedy, "metrics": METRICS},
                "fewer": {
                    "split": "val",
                    "rows": {"same": {"run": "up"}, "thrice": {"mix": {"rise": 3}}},
                    "decode": greedy,
                    "metrics": METRICS,
                },
                "plane": {
                    "split": "val",
                    "plane": {"rise": [0, 1], "other": [0, 0.5, 1]},
                    "decode": greedy,
                    "metrics": METRICS,
                },
            },
        }
        (folder / "results").mkdir()
        (folder / "results" / "experiments.yaml").write_text(yaml.safe_dump(plan, sort_keys=False), encoding="utf-8")
        reproduce(folder / "results", runs=folder / "runs")
    return folder


def test_every_table_is_made_and_can_be_printed(folder: Path) -> None:
    bodies = {
        name: json.loads((folder / "results" / name / "comparison.json").read_text()) for name in ("rows", "plane")
    }
    assert [body["label"] for body in bodies["rows"]["evaluations"]] == ["base", "trained", "twice"]
    assert len(bodies["plane"]["evaluations"]) == 6
    printed = "".join(tables(folder / "results").values())
    assert "| trained |" in printed and "| rise 1, other 0.5 |" in printed
    assert {path.name for path in (folder / "plots").iterdir()} >= {"rows.png", "plane.png", "plane.json"}


def test_the_plane_holds_the_numbers_of_its_mixes(folder: Path) -> None:
    shown = json.loads((folder / "plots" / "plane.json").read_text())
    assert shown["axes"] == {"rise": [0, 1], "other": [0, 0.5, 1]}
    words = shown["values"]["words a caption"]
    body = json.loads((folder / "results" / "plane" / "comparison.json").read_text())
    measured = [next(m["value"] for m in of["measurements"] if m["name"] == "mean_words") for of in body["evaluations"]]
    assert [value for row in words for value in row] == measured


def test_mixes_are_cards_over_int4_directions(folder: Path) -> None:
    mixes = folder / "runs" / "mixes"
    card = read_card(mixes / "2-rise")
    assert isinstance(card, MixCard) and card.coefficients == {"rise": 2}
    assert (mixes / "rise" / "decoder.safetensors").stat().st_size < 0.35 * (
        mixes / "base" / "decoder.safetensors"
    ).stat().st_size
    assert [path.name for path in (mixes / "2-rise").iterdir()] == ["card.json"]


def test_what_is_there_is_kept_and_what_is_missing_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    made = [folder / "results" / name / "comparison.json" for name in ("rows", "plane")]
    checkpoint = folder / "runs" / "up" / "up" / "card.json"
    before = made[0].read_bytes()
    made[0].unlink()
    for path in (made[1], checkpoint):
        os.utime(path, (1, 1))
    reproduce(folder / "results", runs=folder / "runs")
    assert made[0].read_bytes() == before
    assert [path.stat().st_mtime for path in (made[1], checkpoint)] == [1, 1]


def test_what_one_table_measured_is_not_measured_for_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    asked: list[str] = []

    def recorded(subjects: Sequence[Subject], *arguments: Any, **options: Any) -> list[Measured]:
        asked.extend(subject.name() for subject in subjects)
        return evaluate_each(subjects, *arguments, **options)

    monkeypatch.setattr("training.reproduce.evaluate_each", recorded)
    before = (folder / "results" / "fewer" / "comparison.json").read_bytes()
    for name in ("rows", "fewer"):
        (folder / "results" / name / "comparison.json").unlink()
    reproduce(folder / "results", only=["rows", "fewer"], runs=folder / "runs")
    assert asked == ["base", "trained", "twice", "thrice"]
    assert (folder / "results" / "fewer" / "comparison.json").read_bytes() == before


def test_an_unknown_table_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="no table is called 'nothing'; there are: rows, fewer, plane"):
        reproduce(folder / "results", only=["nothing"], runs=folder / "runs")
