"""A run that is killed and started again ends in the same weights as one that is not."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from models.checkpoints import sha256_of
from models.errors import DataError
from tests.training.tiny_run import overrides, write_data
from training.recipe import build_task, read_recipe
from training.trainer import checkpoints

RECIPE = Path("concise.yaml")
RUN = """
import sys
from pathlib import Path
from training.cli import train
train(Path("concise.yaml"), sys.argv[2:], Path(sys.argv[1]))
"""


def _kill_once(checkpoint: Path, out: Path, settings: list[str]) -> None:
    """Start the run and kill it as soon as it has written ``checkpoint``."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(out), *settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not checkpoint.exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_resumed_run_gives_the_weights_of_an_unbroken_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # validation then cuts captions in Python, not in a Java that starts every time
    settings = overrides(write_data(tmp_path / "data"))
    unbroken = build_task(read_recipe(RECIPE, settings)).run(tmp_path / "unbroken" / "run")

    broken = tmp_path / "broken" / "run"
    _kill_once(broken / "checkpoint-4", broken, settings)
    # What a kill in the middle of writing leaves behind must not be taken for a checkpoint.
    (broken / ".checkpoint.partial" / "checkpoint-99").mkdir(parents=True)
    assert checkpoints(broken)[-1].name != "checkpoint-99"
    _kill_once(broken / "checkpoint-8", broken, settings)
    assert not (broken / "concise").exists()
    resumed = build_task(read_recipe(RECIPE, settings)).run(broken)

    for name in ("decoder.safetensors", "vision.safetensors", "tokenizer.json", "config.json"):
        assert sha256_of(resumed / name) == sha256_of(unbroken / name), name
    last = "checkpoint-12/trained.safetensors"
    assert sha256_of(broken / last) == sha256_of(tmp_path / "unbroken" / "run" / last)


def test_a_folder_with_other_settings_is_refused(tmp_path: Path) -> None:
    settings = overrides(write_data(tmp_path / "data"))
    out = tmp_path / "run"
    out.mkdir()
    (out / "recipe.yaml").write_text("task: captioner\nseed: 7\n", encoding="utf-8")
    with pytest.raises(DataError, match="other settings"):
        build_task(read_recipe(RECIPE, settings)).run(out)
