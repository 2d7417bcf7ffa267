"""The trainer on a tiny run: rates, seeds, checkpoints, what is kept."""

import json
import math
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor
from transformers import TrainingArguments

from models.decoding import parse_decode
from models.errors import DataError
from models.families.compact import CompactCaptioner
from tests.training.conftest import TinyData
from training.averaging import trained_tensors
from training.batches import StepBatches
from training.objectives import Batch, Loss
from training.objectives.mle import Mle
from training.trainer import CaptionTrainer, TrainedModule, checkpoints, load_best, read_best
from training.validation import Validation

EPOCHS, STEPS = 3, 6
WARMUP, RATE, SLOW_RATE, FINAL = 2, 1e-2, 1e-3, 0.1

Make = Callable[..., CaptionTrainer]


@pytest.fixture
def make(captioner: CompactCaptioner, data: TinyData, tmp_path: Path) -> Make:
    """A trainer of a fresh copy of the captioner, two pictures a step."""

    def trainer(out: Path = tmp_path / "run", objective: Any = None) -> CaptionTrainer:
        own = deepcopy(captioner)
        own.model.vision.requires_grad_(False)
        own.model.vision.top.requires_grad_(True)
        own.model.embedding_dropout.p = 0.1
        module = TrainedModule(own, objective or Mle(Mle.Options(image_dropout=0.3)))
        tensors = trained_tensors(module)
        vision = [tensor for name, tensor in tensors.items() if "vision." in name]
        rest = [tensor for name, tensor in tensors.items() if "vision." not in name]
        return CaptionTrainer(
            module,
            TrainingArguments(
                output_dir=str(out),
                seed=1,
                num_train_epochs=1,
                learning_rate=RATE,
                lr_scheduler_type="cosine_with_min_lr",
                lr_scheduler_kwargs={"min_lr_rate": FINAL},
                warmup_steps=WARMUP,
                use_cpu=True,
                eval_strategy="steps",
                eval_steps=2,
                save_strategy="steps",
                save_steps=2,
                logging_steps=1,
                report_to=[],
                disable_tqdm=True,
                remove_unused_columns=False,
            ),
            data.items,
            StepBatches(len(data.items), 2, EPOCHS, seed=1),
            Validation(data.items, data.cache, data.examples, parse_decode({"name": "greedy"})),
            groups=[{"params": rest, "lr": RATE}, {"params": vision, "lr": SLOW_RATE}],
            average_decay=0.9,
            select_by="cider",
        )

    return trainer


def weights(trainer: CaptionTrainer) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trained_tensors(trainer.module).items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_rates_rise_then_fall_by_a_cosine_to_their_last_value(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    seen: list[list[float]] = []
    step = CaptionTrainer.training_step

    def recorded(self: CaptionTrainer, *args: Any, **kwargs: Any) -> Tensor:
        seen.append([group["lr"] for group in self.optimizer.param_groups])
        return step(self, *args, **kwargs)

    monkeypatch.setattr(CaptionTrainer, "training_step", recorded)
    trainer.train()
    falling = [FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * i / (STEPS - WARMUP))) for i in range(5)]
    shares = [0.0, 0.5, *falling[:4]]
    assert [rest for rest, _ in seen] == pytest.approx([RATE * share for share in shares])
    assert [vision for _, vision in seen] == pytest.approx([SLOW_RATE * share for share in shares])
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(RATE * FINAL)  # after the last step


def test_a_run_does_not_depend_on_live_random_state(make: Make, tmp_path: Path) -> None:
    first, second = make(tmp_path / "first"), make(tmp_path / "second")
    before = weights(first)
    first.train()
    torch.rand(7)
    second.train()
    assert same(weights(first), weights(second))
    assert same(first.average.tensors, second.average.tensors)
    changed = {name for name, tensor in weights(first).items() if not torch.equal(tensor, before[name])}
    assert changed == set(before)
    assert first.module.captioner.model.vision.stem.state_dict().keys()
    stems = [each.module.captioner.model.vision.stem.state_dict() for each in (first, make(tmp_path / "third"))]
    assert same(*stems)


def test_complete_checkpoints_only_and_no_more_than_two(make: Make, tmp_path: Path) -> None:
    trainer = make()
    trainer.train()
    out = tmp_path / "run"
    assert [path.name for path in checkpoints(out)] == ["checkpoint-4", "checkpoint-6"]
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]
    last = out / "checkpoint-6"
    assert same(safetensors.torch.load_file(last / "trained.safetensors"), weights(trainer))
    assert same(safetensors.torch.load_file(last / "average.safetensors"), trainer.average.tensors)
    assert {"optimizer.pt", "scheduler.pt", "trainer_state.json"} <= {path.name for path in last.iterdir()}


def test_checkpoints_are_sorted_by_step(tmp_path: Path) -> None:
    for step in (900, 1000, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / ".checkpoint.partial" / "checkpoint-2000").mkdir(parents=True)
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-20", "checkpoint-900", "checkpoint-1000"]


def test_training_resumes_bit_by_bit(make: Make, tmp_path: Path) -> None:
    unbroken = make(tmp_path / "unbroken")
    unbroken.train()
    resumed = make(tmp_path / "resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "unbroken" / "checkpoint-4"))
    assert same(weights(resumed), weights(unbroken))
    assert same(resumed.average.tensors, unbroken.average.tensors)


def test_the_best_average_is_kept(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    out = tmp_path / "run"
    assert read_best(out) is None
    averages: list[dict[str, Tensor]] = []
    scores = iter([0.2, 0.5, 0.4])

    def validated(captioner: CompactCaptioner) -> dict[str, float]:
        averages.append(weights(trainer))
        return {"cider": next(scores)}

    monkeypatch.setattr(trainer._validation, "run", validated)
    trainer.train()
    assert read_best(out) == {"step": 4, "values": {"cider": 0.5}}
    own = weights(trainer)
    load_best(out, trainer.module)
    assert same(weights(trainer), averages[1])
    assert not same(own, averages[1])
    assert same(averages[2], trainer.average.tensors)  # what was validated is the average


def test_a_loss_that_is_not_finite_ends_the_run(make: Make) -> None:
    def overflowing(captioner: CompactCaptioner, batch: Batch) -> Loss:
        loss = captioner.model.null_memory.sum() * float("inf")
        return Loss(loss, {})

    with pytest.raises(DataError, match="step 0") as caught:
        make(objective=overflowing).train()
    assert caught.value.code == "not_finite"


def test_losses_are_logged_and_nothing_is_printed(
    make: Make, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="training.trainer"):
        make().train()
    assert capfd.readouterr().out == ""
    lines = [record.getMessage() for record in caplog.records]
    losses = [json.loads(line.partition(": ")[2]) for line in lines if '"loss"' in line]
    assert len(losses) == STEPS
    assert lines[0].startswith("step 1/6: ")
    assert sum('"eval_cider"' in line for line in lines) == 3
