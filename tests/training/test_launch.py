"""A run that workers share is the run of one worker on the batches of all."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from models.cli import run
from models.errors import DataError
from tests.training.tiny_run import overrides, write_data
from training.launch import _cause, shared_recipe
from training.recipe import build_task, read_recipe

RECIPE = Path("concise_start.yaml")
WORKERS, STEPS = 2, 6
OBJECTIVES = {
    "mle": "objective={name: mle, options: {label_smoothing: 0.1}}",
    "smile": "objective={name: smile, options: {mle_weight: 0.3}}",
}


LAUNCH = f"""
import json, sys
from pathlib import Path
from training.launch import launch
print(launch([(recipe, Path(out)) for recipe, out in json.loads(sys.argv[1])], workers={WORKERS}))
"""


def recipe(data: Path, objective: str, images_per_step: int) -> dict[str, Any]:
    words = "train.epochs=2 model.dropout=0 model.feature_dropout=0".split()
    step = f"train.images_per_step={images_per_step}"
    return read_recipe(RECIPE, [*overrides(data), *words, OBJECTIVES[objective], step])


def write_uneven_data(folder: Path) -> Path:
    """Pictures with one, two or three captions, so that the workers' parts of a batch hold unequally many tokens."""
    path = write_data(folder)
    content = json.loads(path.read_text("utf-8"))
    for number, image in enumerate(content["images"]):
        image["sentences"] = (image["sentences"] * 2)[number % 2 : number % 2 + 1 + number % 3]
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Runs:
    """Finished runs: by one worker, by two, and by two from the middle of one worker's."""

    folder: Path

    def of(self, who: str, objective: str) -> Path:
        return self.folder / who / objective

    def log(self, who: str, objective: str) -> list[dict[str, float]]:
        state = self.of(who, objective) / f"checkpoint-{STEPS}" / "trainer_state.json"
        history: list[dict[str, float]] = json.loads(state.read_text("utf-8"))["log_history"]
        return history


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("launched")
    data = write_uneven_data(folder / "data")
    runs = Runs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")  # captions are then cut in Python, not in a Java that starts every time
        for objective in OBJECTIVES:
            build_task(recipe(data, objective, 4)).run(runs.of("one", objective))
    begun = runs.of("resumed", "mle")
    shutil.copytree(runs.of("one", "mle"), begun)
    for later in (f"checkpoint-{STEPS}", "concise-start", "best.safetensors"):
        path = begun / later
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shared = [(recipe(data, objective, 4 // WORKERS), runs.of("two", objective)) for objective in OBJECTIVES]
    resumed = (recipe(data, "mle", 4 // WORKERS), begun)
    assert launched([*shared, resumed]) == begun / "concise-start"
    return runs


def launched(runs: list[tuple[dict[str, Any], Path]]) -> Path:
    """What ``launch`` returns, in a process of its own: this one may hold the Ray of the server's tests."""
    words = [sys.executable, "-c", LAUNCH, json.dumps([(recipe, str(out)) for recipe, out in runs])]
    environment = {**os.environ, "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}  # processes that would only take time here
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_two_workers_have_the_curves_of_one_with_the_doubled_batch(runs: Runs, objective: str) -> None:
    one, two = (runs.log(who, objective) for who in ("one", "two"))
    assert [entry["step"] for entry in two] == [entry["step"] for entry in one]
    assert len([entry for entry in two if "loss" in entry]) == STEPS
    for expected, entry in zip(one, two, strict=True):
        assert entry.keys() == expected.keys()
        timeless = {name: value for name, value in expected.items() if name != "tokens_per_s"}
        assert {name: entry[name] for name in timeless} == pytest.approx(timeless, abs=1e-4)


def test_two_workers_go_on_where_one_was(runs: Runs) -> None:
    one, resumed = runs.log("one", "mle"), runs.log("resumed", "mle")
    losses = [[entry["loss"] for entry in log if "loss" in entry] for log in (one, resumed)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
    # Measured speeds included: these steps were not done again.
    before = [[entry for entry in log if entry["step"] <= 4] for log in (one, resumed)]
    assert before[1] == before[0]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_result_is_the_one_worker_s_with_its_recipe(runs: Runs, objective: str) -> None:
    one, two = (runs.of(who, objective) for who in ("one", "two"))
    assert sorted(path.name for path in two.iterdir()) == sorted(path.name for path in one.iterdir())
    recipes = [(out / "concise-start" / "recipe.yaml").read_text("utf-8") for out in (one, two)]
    assert recipes[0] == recipes[1]
    ours, theirs = (
        safetensors.torch.load_file(run / f"checkpoint-{STEPS}" / "trained.safetensors") for run in (two, one)
    )
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, atol=1e-3, rtol=1e-3)


def test_a_shared_recipe_has_the_pictures_of_all_workers(tmp_path: Path) -> None:
    alone = recipe(tmp_path / "dataset.json", "mle", 6)
    assert shared_recipe(alone, 3) == {**alone, "train": {**alone["train"], "images_per_step": 18}}
    unsaid = {**alone, "train": {"epochs": 1}}
    assert shared_recipe(unsaid, 2)["train"] == {"epochs": 1, "images_per_step": 48}


def test_only_captioners_are_trained_by_several_workers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="'scorer'.*--workers"):
        shared_recipe(read_recipe(Path("scorer.yaml")), 2)
    assert run(["train", "concise_start.yaml", "--gpus"]) == 2
    assert "--workers" in capsys.readouterr().err


def test_what_a_worker_raised_on_purpose_is_raised_again() -> None:
    from ray.train import WorkerGroupError

    meant = DataError("not_finite", "the loss is nan")
    assert _cause(WorkerGroupError("two failed", {0: RuntimeError("gone"), 1: meant})) is meant
    unmeant = WorkerGroupError("one failed", {0: RuntimeError("gone")})
    assert _cause(unmeant) is unmeant
