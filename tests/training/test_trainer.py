"""The trainer on a tiny run: rates, seeds, checkpoints, what is kept."""

import math
from collections.abc import Iterator
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import dataclass
from io import StringIO
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
from training.batches import StepBatches, collator
from training.caption_trainer import CaptionTrainer, TrainedModule
from training.captioner_config import SelectSettings
from training.objectives import choose_objective
from training.objectives.interface import Batch, Loss, Objective
from training.trainer import checkpoints, load_best, read_best
from training.validation import Validation

EPOCHS, STEPS = 3, 6
WARMUP, RATE, SLOW_RATE, FINAL = 2, 1e-2, 1e-3, 0.1


@pytest.fixture(scope="module", autouse=True)
def _without_java() -> Iterator[None]:
    """Validation then cuts captions in Python: starting Java takes longer than all steps of these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        yield


def make_trainer(captioner: CompactCaptioner, data: TinyData, out: Path, objective: Any = None) -> CaptionTrainer:
    """A trainer of a fresh copy of the captioner: three epochs, two pictures a step."""
    own = deepcopy(captioner)
    own.model.embedding_dropout.p = 0.1
    objective = objective or choose_objective("mle", {"image_dropout": 0.3}).build()
    module = TrainedModule(own, objective)
    tensors = trained_tensors(module)
    vision = [tensor for name, tensor in tensors.items() if "vision." in name]
    rest = [tensor for name, tensor in tensors.items() if "vision." not in name]
    return CaptionTrainer(
        module,
        _arguments(out),
        data.items,
        StepBatches(len(data.items), 2, EPOCHS, seed=1),
        Validation(
            data.items, data.cache, data.examples, parse_decode({"name": "greedy", "options": {"max_tokens": 6}})
        ),
        collate=collator(packed=True),
        groups=[{"params": rest, "lr": RATE}, {"params": vision, "lr": SLOW_RATE}],
        average_decay=0.9,
        select=SelectSettings(),
    )


def _arguments(out: Path) -> TrainingArguments:
    return TrainingArguments(
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
    )


def weights(trainer: CaptionTrainer) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trained_tensors(trainer.module).items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@dataclass(frozen=True)
class Run:
    """A finished run and what was seen of it."""

    trainer: CaptionTrainer
    out: Path
    before: dict[str, Tensor]
    """Trained weights at the start."""
    rates: list[list[float]]
    """Learning rates of the groups at each step, and after the last."""
    printed: str


@pytest.fixture(scope="module")
def run(captioner: CompactCaptioner, data: TinyData, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run")
    trainer = make_trainer(captioner, data, out)
    before, rates = weights(trainer), []

    def note_rates() -> None:
        assert trainer.optimizer is not None
        rates.append([group["lr"] for group in trainer.optimizer.param_groups])

    step = CaptionTrainer.training_step

    def recorded(self: CaptionTrainer, *args: Any, **kwargs: Any) -> Tensor:
        note_rates()
        return step(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.setattr(CaptionTrainer, "training_step", recorded)
        trainer.train()
    note_rates()
    return Run(trainer, out, before, rates, printed.getvalue())


def test_rates_rise_then_fall_by_a_cosine_to_their_last_value(run: Run) -> None:
    falling = [FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * i / (STEPS - WARMUP))) for i in range(5)]
    shares = [0.0, 0.5, *falling]
    assert [rest for rest, _ in run.rates] == pytest.approx([RATE * share for share in shares])
    assert [vision for _, vision in run.rates] == pytest.approx([SLOW_RATE * share for share in shares])
    assert run.rates[-1] == pytest.approx([RATE * FINAL, SLOW_RATE * FINAL])


def test_everything_that_is_to_be_trained_moves_and_nothing_else(run: Run, captioner: CompactCaptioner) -> None:
    after = weights(run.trainer)
    assert [name for name in after if torch.equal(after[name], run.before[name])] == []
    stems = [each.model.vision.stem.state_dict() for each in (run.trainer.module.captioner, captioner)]
    assert same(*stems)


def test_a_run_resumes_bit_by_bit_whatever_was_drawn_before(
    run: Run, captioner: CompactCaptioner, data: TinyData, tmp_path: Path
) -> None:
    resumed = make_trainer(captioner, data, tmp_path)
    torch.rand(7)
    resumed.train(resume_from_checkpoint=str(run.out / "checkpoint-4"))
    assert same(weights(resumed), weights(run.trainer))
    assert same(resumed.average.tensors, run.trainer.average.tensors)


def test_the_optimizer_is_adamw_as_it_is_written(captioner: CompactCaptioner, data: TinyData, tmp_path: Path) -> None:
    trainer = make_trainer(captioner, data, tmp_path)
    optimizer = trainer.create_optimizer()
    ours = [group["params"] for group in optimizer.param_groups]
    theirs = [[tensor.detach().clone().requires_grad_() for tensor in group] for group in ours]
    groups = [{"params": group, "lr": rate} for group, rate in zip(theirs, (RATE, SLOW_RATE), strict=True)]
    plain = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98), fused=False, foreach=False)
    for _ in range(3):
        for own, other in zip(sum(ours, []), sum(theirs, []), strict=True):
            own.grad = torch.randn_like(own)
            other.grad = own.grad.clone()
        optimizer.step()
        plain.step()
    for own, other in zip(sum(ours, []), sum(theirs, []), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)


def test_complete_checkpoints_only_and_no_more_than_two(run: Run) -> None:
    assert [path.name for path in checkpoints(run.out)] == ["checkpoint-4", "checkpoint-6"]
    assert not [path.name for path in run.out.iterdir() if path.name.startswith(".")]
    last = run.out / "checkpoint-6"
    assert same(safetensors.torch.load_file(last / "trained.safetensors"), weights(run.trainer))
    assert same(safetensors.torch.load_file(last / "average.safetensors"), run.trainer.average.tensors)
    assert {"optimizer.pt", "scheduler.pt", "trainer_state.json"} <= {path.name for path in last.iterdir()}


def test_every_step_is_logged_and_every_epoch_validated_once(run: Run) -> None:
    history = run.trainer.state.log_history
    assert [entry["step"] for entry in history if "loss" in entry] == [1, 2, 3, 4, 5, 6]
    assert [entry["step"] for entry in history if "eval_cider" in entry] == [2, 4, 6]
    assert run.printed == ""


def test_checkpoints_are_sorted_by_step(tmp_path: Path) -> None:
    for step in (900, 1000, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / ".checkpoint.partial" / "checkpoint-2000").mkdir(parents=True)
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-20", "checkpoint-900", "checkpoint-1000"]


def test_the_best_average_is_kept(
    captioner: CompactCaptioner, data: TinyData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(captioner, data, tmp_path)
    assert read_best(tmp_path) is None
    averages: list[dict[str, Tensor]] = []
    scores = iter([0.2, 0.5, 0.4])

    def validated() -> dict[str, float]:
        averages.append(weights(trainer))
        return {"cider": next(scores)}

    monkeypatch.setattr(trainer, "_validate", validated)
    trainer.train()
    assert read_best(tmp_path) == {"step": 4, "values": {"cider": 0.5}}
    assert same(averages[2], trainer.average.tensors)  # what is validated is the average
    load_best(tmp_path, trainer.module)
    assert same(weights(trainer), averages[1])


class Overflowing(Objective):
    def __call__(self, captioner: Any, batch: Batch) -> Loss:
        return Loss(captioner.model.null_memory.sum() * float("inf"), {})


def test_a_loss_that_is_not_finite_ends_the_run(captioner: CompactCaptioner, data: TinyData, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="step 0") as caught:
        make_trainer(captioner, data, tmp_path, Overflowing(Objective.Options())).train()
    assert caught.value.code == "not_finite"
