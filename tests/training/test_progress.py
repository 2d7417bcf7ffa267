"""What a run shows of itself: a bar on a terminal, lines elsewhere, event files where asked for."""

import io
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from models.errors import MissingDependencyError
from training.captioner_config import SelectSettings
from training.progress import StepStatistics, event_files
from training.trainer import StepTrainer

STEPS = 6


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Line(nn.Module):
    """A weight times x, which is to be 0."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))
        self.steps, self.fails_at = 0, fails_at

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        if self.steps == self.fails_at:
            raise KeyboardInterrupt
        self.steps += 1
        loss = (self.weight * x).square().mean()
        return {"loss": loss, "square": loss.detach()}


class LineTrainer(StepTrainer):
    def count_tokens(self, inputs: dict[str, Any]) -> int:
        return 10


def line_trainer(out: Path, module: nn.Module | None = None, **settings: Any) -> StepTrainer:
    module = module or Line()
    arguments = TrainingArguments(
        output_dir=str(out),
        max_steps=STEPS,
        use_cpu=True,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="no",
        logging_steps=2,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    return LineTrainer(
        module,
        arguments,
        [{"x": torch.tensor(float(number))} for number in range(1, 9)],
        lambda: {"nll": 1.0},
        groups=[{"params": list(module.parameters()), "lr": 1e-3}],
        average_decay=0.9,
        select=SelectSettings(metric="nll", mode="min"),
        **settings,
    )


@contextmanager
def watched_by(stream: io.StringIO) -> Iterator[io.StringIO]:
    """The stream stands for stderr, with the log going there as the command does it."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    ours = logging.StreamHandler(stream)
    root.handlers = [ours]
    root.setLevel(logging.INFO)
    try:
        with redirect_stderr(stream):
            yield stream
        assert root.handlers == [ours]
    finally:
        root.handlers = before
        root.setLevel(level)


def test_a_terminal_shows_parts_of_the_loss_speed_and_time_left(tmp_path: Path) -> None:
    with watched_by(Terminal()) as stderr:
        line_trainer(tmp_path).train()
    ended = rf"{STEPS}/{STEPS} \[\d\d:\d\d<\d\d:\d\d, .*square=\d.*tokens_per_s=\d"
    assert re.search(ended, stderr.getvalue())


def test_lines_of_the_log_stay_whole_beside_the_bar(tmp_path: Path) -> None:
    with watched_by(Terminal()) as stderr:
        line_trainer(tmp_path).train()
    lines = [line.rpartition("\r")[2] for line in stderr.getvalue().split("\n") if "grad_norm" in line]
    assert [line[:9] for line in lines] == ["step 2/6:", "step 4/6:", "step 6/6:"]
    assert all(line.endswith("}") for line in lines)


def test_without_a_terminal_there_are_lines_only(tmp_path: Path) -> None:
    with watched_by(io.StringIO()) as stderr:
        line_trainer(tmp_path).train()
    shown = stderr.getvalue()
    assert "\r" not in shown and "step/s" not in shown
    assert shown.count("grad_norm") == 3


def test_a_run_that_an_error_ends_takes_its_bar_away(tmp_path: Path) -> None:
    with watched_by(Terminal()) as stderr, pytest.raises(KeyboardInterrupt):
        line_trainer(tmp_path, Line(fails_at=3)).train()
    assert "3/6" in stderr.getvalue()
    assert stderr.getvalue().endswith("\n")


def test_means_are_weighted_by_what_a_worker_s_batch_counts_for() -> None:
    statistics = StepStatistics()
    statistics.add({"mle": torch.tensor(2.0)}, 5, 1.0)
    statistics.add({"mle": torch.tensor(3.0)}, 7, 0.5)
    assert statistics.means()["mle"] == (2.0 + 3.0 * 0.5) / 2
    taken = statistics.take()
    assert taken["mle"] == 1.75 and taken["tokens_per_s"] > 0
    assert statistics.means() == {}


def test_event_files_hold_the_loss_and_its_parts(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer = line_trainer(tmp_path, tensorboard=True)
    trainer.train()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    for name in ("train/loss", "train/square", "train/tokens_per_s"):
        assert [event.step for event in events.Scalars(name)] == [2, 4, 6], name
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(losses)
    assert [event.step for event in events.Scalars("eval/nll")] == [3, 6]


def test_no_event_files_unless_asked_for(tmp_path: Path) -> None:
    line_trainer(tmp_path).train()
    assert not list(tmp_path.rglob("*tfevents*"))


def test_a_missing_tensorboard_is_told_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingDependencyError, match=r"tensorboard.*pip install 'limner\[train\]'"):
        event_files(tmp_path)
