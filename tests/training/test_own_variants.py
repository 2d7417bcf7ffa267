"""An objective and a metric of one's own: one file and one line in a table each, as CONTRIBUTING.md says.

This module is the file; the line is put into the table for the time of a test.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from models.card import WeightsCard, read_card
from models.cli import run
from models.families.base import TorchCaptioner
from models.text_stats import words
from tests.training.tiny_run import overrides, write_data
from training.metrics import METRICS
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric
from training.objectives import OBJECTIVES
from training.objectives.interface import Batch, Loss, Objective, teacher_force


class Focal(Objective):
    """Maximum likelihood that counts tokens less the surer they are: mean of -(1 - p)^gamma log p."""

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        gamma: float = Field(default=2.0, ge=0)

    def __call__(self, captioner: TorchCaptioner, batch: Batch) -> Loss:
        memory = captioner.encode_from_stem(batch.features)
        logits = teacher_force(captioner, memory, batch.captions).logits
        assert logits is not None
        loss = focal(logits, batch.captions.targets.labels, self.options.gamma)
        return Loss(loss, {"focal": loss.detach()})


def focal(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """Mean over the targets; logits (N, V), labels (N,)."""
    logs = logits.float().log_softmax(-1).gather(1, labels[:, None])[:, 0]
    return -((1 - logs.exp()) ** gamma * logs).sum() / max(len(logs), 1)


class LongestWord(ImageMetric):
    """Mean length of the longest word."""

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

    def definitions(self) -> dict[str, Definition]:
        return {"longest_word": Definition("mean letters of a caption's longest word", over_images="mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        return {"longest_word": [float(max(map(len, words(caption)), default=0)) for caption in inputs.captions]}


def test_the_objective_by_hand() -> None:
    logits = torch.tensor([[0.75, 0.25], [0.5, 0.5]]).log()
    expected = -(0.25**2 * math.log(0.75) + 0.5**2 * math.log(0.5)) / 2
    torch.testing.assert_close(focal(logits, torch.tensor([0, 1]), 2.0), torch.tensor(expected))


def test_a_recipe_trains_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "focal", f"{__name__}:Focal")
    monkeypatch.setenv("PATH", "")  # validation then cuts captions in Python, not in a Java that starts every time
    settings = [*overrides(write_data(tmp_path / "data")), "train.epochs=1"]
    out = tmp_path / "runs" / "run"
    chosen = "objective={name: focal, options: {gamma: 1}}"
    assert run(["train", "concise_start.yaml", *settings, chosen, "--out", str(out)]) == 0
    card = read_card(out / "concise-start")
    assert isinstance(card, WeightsCard) and card.objective is not None
    assert (card.objective.name, card.objective.options) == ("focal", {"gamma": 1})
    state = json.loads((out / "checkpoint-3" / "trainer_state.json").read_text("utf-8"))
    assert all(entry["focal"] == pytest.approx(entry["loss"]) for entry in state["log_history"] if "loss" in entry)


def test_options_that_do_not_fit_it_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(OBJECTIVES, "focal", f"{__name__}:Focal")
    assert (
        run(["train", "concise_start.yaml", "objective={name: focal, options: {gama: 1}}", "--out", str(tmp_path)]) == 2
    )
    assert "gamma" in capsys.readouterr().err


def test_an_evaluation_reports_the_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(METRICS, "longest_word", f"{__name__}:LongestWord")
    data = write_data(tmp_path / "data", train=1, val=2)
    captions = tmp_path / "captions.json"
    written: list[dict[str, Any]] = [
        {"image_id": 1, "caption": "a green ball"},
        {"image_id": 2, "caption": "blue on a yellow ground"},
    ]
    captions.write_text(json.dumps(written), encoding="utf-8")
    source = ["--data", str(data), "--images-root", str(data.parent), "--split", "val", "--tokenizer", "python"]
    assert run(["evaluate", str(captions), *source, "--metric", "longest_word", "--out", str(tmp_path / "out")]) == 0
    assert "longest_word" in capsys.readouterr().out
    body = json.loads((tmp_path / "out" / "evaluation.json").read_text("utf-8"))
    (measured,) = body["measurements"]
    assert (measured["name"], measured["value"]) == ("longest_word", 5.5)
    assert "longest word" in measured["definition"]
