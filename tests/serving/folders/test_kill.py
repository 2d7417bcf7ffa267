"""``limner caption`` killed again and again: in the end its output is that of a run that was left alone."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from models.cli import run

ROOT = Path(__file__).parents[3]
MAIN = [sys.executable, "-m", "models.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
PER_BATCH = 4
SOME_WORDS = "what somebody wrote before"


def words(*arguments: str | Path) -> list[str]:
    own = ["--device", "cpu", "--threads", "1", "--workers", "1", "--batch-size", str(PER_BATCH)]
    return ["caption", *map(str, arguments), *own]


def write_pictures(folder: Path, number: int) -> None:
    """Pictures that differ, some of them damaged, in folders and formats of several kinds."""
    random_pixels = np.random.default_rng(7)
    for index in range(number):
        within = folder / f"part {index % 3}"
        within.mkdir(parents=True, exist_ok=True)
        side = 40 + index % 50
        tiles = random_pixels.integers(0, 256, (3, 3, 3), dtype=np.uint8)
        picture = Image.fromarray(tiles).resize((side, 64), Image.Resampling.NEAREST)
        path = within / f"{index:04d}.{('jpg', 'png', 'webp')[index % 3]}"
        picture.save(path)
        if index % 17 == 5:
            path.write_bytes(path.read_bytes()[:40])


def killed(command: Sequence[str], progress: Callable[[], int], rng: random.Random) -> bool:
    """Start the command and kill it at a random moment, mostly after it wrote something; false when it was faster."""
    before = progress()
    process = subprocess.Popen([*MAIN, *command], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while rng.random() > 0.002 and progress() == before and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.25))
        if process.poll() is not None:
            return False
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return True


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def finish(command: Sequence[str]) -> None:
    """A run that is left alone, in this process."""
    assert run(command) == 1  # some pictures are damaged


def size_of(path: Path) -> Callable[[], int]:
    return lambda: path.stat().st_size if path.exists() else 0


KILLS = [pytest.param(3, id="3 kills"), pytest.param(20, id="20 kills", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kills", KILLS)
def test_json_lines(tmp_path: Path, kills: int) -> None:
    folder = tmp_path / "pictures"
    write_pictures(folder, PER_BATCH * (8 + 3 * kills))
    whole, broken = tmp_path / "whole" / "captions.jsonl", tmp_path / "broken" / "captions.jsonl"
    for out in (whole, broken):
        out.parent.mkdir()
    finish(words(folder, "-r", "--model", "concise", "--out", whole))
    command = words(folder, "-r", "--model", "concise", "--out", broken)
    rng = random.Random(kills)
    done = sum(killed(command, size_of(broken), rng) for _ in range(kills))
    assert done == kills
    assert json.loads((broken.parent / "run.json").read_text())["state"] == "running"
    finish(command)
    assert sorted(broken.read_bytes().splitlines()) == sorted(whole.read_bytes().splitlines())
    assert json.loads((broken.parent / "run.json").read_text())["state"] == "finished"
    assert {path.name for path in broken.parent.iterdir()} == {"captions.jsonl", "run.json"}


@pytest.mark.parametrize("kills", KILLS)
def test_captions_that_are_added_to_others(tmp_path: Path, kills: int) -> None:
    number = PER_BATCH * (20 + 20 * kills)
    for name in ("whole", "broken"):
        write_pictures(tmp_path / name, number)
        for picture in (tmp_path / name).rglob("*.jpg"):
            picture.with_suffix(".txt").write_text(SOME_WORDS + "\n")
    added = ["-r", "--model", "fake", "--format", "txt", "--existing", "append"]
    finish(words(tmp_path / "whole", *added))
    command = words(tmp_path / "broken", *added)
    rng = random.Random(kills)
    journal = tmp_path / "broken" / ".txt.limner-journal"
    assert sum(killed(command, size_of(journal), rng) for _ in range(kills)) > 0
    finish(command)
    texts = [
        {path.relative_to(tmp_path / name): path.read_text() for path in (tmp_path / name).rglob("*.txt")}
        for name in ("whole", "broken")
    ]
    assert texts[0] == texts[1]
    assert {text.count("\n") for text in texts[0].values() if text != SOME_WORDS + "\n"} == {1, 2}
    assert not journal.exists()
