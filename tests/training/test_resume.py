"""A run that is killed and started again ends in the same weights as one that is not.

``LIMNER_KILLS=20 pytest tests/training/test_resume.py`` kills as often at random moments; the default is once.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from models.checkpoints import sha256_of
from models.cli import run
from models.errors import DataError
from tests.training.tiny_run import overrides, write_data
from training.recipe import build_task, read_recipe
from training.trainer import checkpoints

RECIPE = Path("concise_start.yaml")
OBJECTIVES = {
    "mle": ["objective.options={label_smoothing: 0.1, image_dropout: 0.3}"],
    # Its state, the reference, must be that of the last replacement.
    "contrastive": ["objective={name: contrastive, options: {K: 2, refresh_reference_every: 5}}"],
}
MOMENTS = {
    "features": "../features/*.partial",
    "checkpoint": ".checkpoint.partial/checkpoint-*/optimizer.pt",
    "best weights": ".best.safetensors.partial",
    "the finished captioner": ".concise-start.*.partial",
}
"""What is being written -> the file that shows it, in the folder of the run."""
RANDOM_KILLS = int(os.environ.get("LIMNER_KILLS", "1"))
PATIENCE_S = 120.0

# A server that has loaded torch and our code once: what it forks starts at once.
_PROCESSES = get_context("forkserver")
_PROCESSES.set_forkserver_preload(["training.captioner_task"])


def _train(out: Path, settings: list[str]) -> None:
    """``limner train`` in a process of its own, without a word."""
    os.environ["PATH"] = ""  # validation then cuts captions in Python, not in a Java that starts every time
    with (out.parent / "log.txt").open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        sys.exit(run(["train", str(RECIPE), *settings, "--out", str(out)]))


@dataclass(frozen=True)
class Killer:
    """Starts a run again and again."""

    out: Path
    settings: list[str]

    def kill(self, due: Callable[[], Any]) -> bool:
        """Start the run and kill it as soon as ``due``; False if it ended before."""
        process = self._start()
        deadline = time.monotonic() + PATIENCE_S
        while not due():
            assert time.monotonic() < deadline
            if not process.is_alive():
                assert process.exitcode == 0, (self.out.parent / "log.txt").read_text("utf-8")
                return False
            time.sleep(0.0002)
        process.kill()
        process.join()
        return process.exitcode == -signal.SIGKILL

    def finish(self) -> float:
        """Run to the end; the seconds that it took."""
        began = time.monotonic()
        process = self._start()
        process.join(PATIENCE_S)
        assert process.exitcode == 0, (self.out.parent / "log.txt").read_text("utf-8")
        return time.monotonic() - began

    def _start(self) -> Any:
        self.out.parent.mkdir(exist_ok=True)
        process = _PROCESSES.Process(target=_train, args=(self.out, self.settings))
        process.start()
        return process


def _outcome(out: Path) -> dict[str, str]:
    """Hashes of what a run leaves that does not hold the time."""
    names = ["trained", "average", "objective"]
    files = [out / "checkpoint-12" / f"{name}.safetensors" for name in names]
    files += [path for path in (out / "concise-start").iterdir() if path.name != "card.json"]
    files.append(out / "best.safetensors")
    return {str(path.relative_to(out)): sha256_of(path) for path in files if path.exists()}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_killed_at_any_moment_a_run_ends_in_the_weights_of_an_unbroken_one(objective: str, tmp_path: Path) -> None:
    settings = [*overrides(write_data(tmp_path / "data")), *OBJECTIVES[objective], "train.save_every_steps=1"]
    unbroken = Killer(tmp_path / "unbroken" / "run", settings)
    seconds = unbroken.finish()
    expected = _outcome(unbroken.out)
    assert ("checkpoint-12/objective.safetensors" in expected) == (objective == "contrastive")

    killer = Killer(tmp_path / "broken" / "run", settings)
    for what, pattern in MOMENTS.items():
        if what == "the finished captioner":  # what is left of the run is for kills at random
            for _ in range(RANDOM_KILLS):
                due = time.monotonic() + random.uniform(0, seconds)
                killer.kill(lambda due=due: time.monotonic() > due)  # type: ignore[misc]
        assert killer.kill(lambda pattern=pattern: list(killer.out.glob(pattern))), what  # type: ignore[misc]
    killer.finish()
    assert _outcome(killer.out) == expected


def test_what_a_kill_leaves_of_a_checkpoint_is_none(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.partial" / "checkpoint-99").mkdir(parents=True)
    assert checkpoints(tmp_path) == []


def test_a_folder_with_other_settings_is_refused(tmp_path: Path) -> None:
    settings = overrides(write_data(tmp_path / "data"))
    out = tmp_path / "run"
    out.mkdir()
    (out / "recipe.yaml").write_text("task: captioner\nseed: 7\n", encoding="utf-8")
    (out / "checkpoint-2").mkdir()
    with pytest.raises(DataError, match="other settings"):
        build_task(read_recipe(RECIPE, settings)).run(out)
