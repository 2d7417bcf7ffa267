"""``transformers.Trainer`` around an objective: what is ours is the loss, the seeding and how checkpoints are kept."""

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from models.checkpoints import replace_folder
from models.errors import DataError
from models.families.compact import CompactCaptioner
from training.averaging import WeightAverage, trained_tensors
from training.batches import CaptionItems, StepBatches, collate
from training.objectives import Batch, Objective
from training.seeds import seed_of
from training.validation import Validation

logger = logging.getLogger(__name__)

_TRAINED_FILE = "trained.safetensors"
_AVERAGE_FILE = "average.safetensors"
_BEST_FOLDER = "best"
_KEPT_CHECKPOINTS = 2


class TrainedModule(nn.Module):
    """A captioner and its objective as the one module that the trainer calls."""

    def __init__(self, captioner: CompactCaptioner, objective: Objective) -> None:
        super().__init__()
        self.captioner = captioner
        self.objective = objective

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        loss = self.objective(self.captioner, batch)
        return {"loss": loss.total, **loss.parts}


class CaptionTrainer(Trainer):
    """Trains a captioner; the weights that are validated and kept are the moving average.

    Every random draw of a step is seeded by (seed, step), and checkpoints appear by renaming: a run that is killed and
    started again ends in the same weights, bit for bit on a CPU with the same number of threads.
    """

    def __init__(
        self,
        module: TrainedModule,
        args: TrainingArguments,
        items: CaptionItems,
        batches: StepBatches,
        validation: Validation,
        *,
        groups: list[dict[str, Any]],
        average_decay: float,
        select_by: str,
    ) -> None:
        super().__init__(model=module, args=args, train_dataset=items, eval_dataset=items, data_collator=collate)
        self.remove_callback(PrinterCallback)
        self.module = module
        self.average = WeightAverage(module, average_decay)
        self.add_callback(_Averaging(self.average))
        self._items = items
        self.batches = batches
        self._validation = validation
        self._groups = groups
        self._select_by = select_by
        self._saving_to: str | None = None

    def get_train_dataloader(self) -> Any:
        loader = DataLoader(self._items, batch_sampler=self.batches, collate_fn=collate)
        return self.accelerator.prepare(loader)

    def create_optimizer(self, *_: Any) -> Any:
        self.optimizer = torch.optim.AdamW(self._groups, lr=self.args.learning_rate, betas=(0.9, 0.98))
        return self.optimizer

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        torch.manual_seed(seed_of(self.args.seed, "step", self.state.global_step))
        loss: Tensor = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            raise DataError("not_finite", f"the loss is {float(loss)} at step {self.state.global_step}: lower the rate")
        return loss

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {"batch": inputs["batch"].to(self.args.device)}

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        super().log(logs, *args, **kwargs)
        logger.info("step %d/%d: %s", self.state.global_step, self.state.max_steps, json.dumps(logs))

    # --- validation ---------------------------------------------------------------------------------------------

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Validate the averaged weights, and keep them when they are the best so far."""
        with self.average.applied():
            values = self._validation.run(self.module.captioner)
        metrics = {f"eval_{name}": value for name, value in values.items()}
        self.log(metrics)
        best = read_best(Path(str(self.args.output_dir)))
        if best is None or values[self._select_by] > best["values"][self._select_by]:
            self._keep_best(values)
        self.control.should_evaluate = False  # the trainer would validate the last step again at the end of the epoch
        return metrics

    def _keep_best(self, values: Mapping[str, float]) -> None:
        folder = Path(str(self.args.output_dir)) / _BEST_FOLDER
        draft = folder.with_name(f".{_BEST_FOLDER}.partial")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        safetensors.torch.save_file(self.average.tensors, draft / _AVERAGE_FILE)
        record = {"step": self.state.global_step, "values": dict(values)}
        (draft / "best.json").write_text(json.dumps(record), encoding="utf-8")
        replace_folder(draft, folder)

    # --- checkpoints --------------------------------------------------------------------------------------------

    def _get_output_dir(self, trial: Any) -> str:
        return self._saving_to or str(super()._get_output_dir(trial))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        out = Path(str(self.args.output_dir))
        draft = out / ".checkpoint.partial"
        shutil.rmtree(draft, ignore_errors=True)
        self._saving_to = str(draft)
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._saving_to = None
        (written,) = draft.glob("checkpoint-*")
        for path in written.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        replace_folder(written, out / written.name)
        draft.rmdir()
        for old in checkpoints(out)[:-_KEPT_CHECKPOINTS]:
            shutil.rmtree(old)
        self.control.should_save = False  # as above

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        trained = {name: tensor.detach().contiguous() for name, tensor in trained_tensors(self.module).items()}
        safetensors.torch.save_file(trained, folder / _TRAINED_FILE)
        safetensors.torch.save_file(self.average.tensors, folder / _AVERAGE_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        folder = Path(resume_from_checkpoint)
        stored = safetensors.torch.load_file(folder / _TRAINED_FILE)
        with torch.no_grad():
            for name, parameter in trained_tensors(self.module).items():
                parameter.copy_(stored[name])
        self.average.restore(safetensors.torch.load_file(folder / _AVERAGE_FILE))


class _Averaging(TrainerCallback):
    def __init__(self, average: WeightAverage) -> None:
        self._average = average

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._average.update(state.global_step)


def checkpoints(out: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(out.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))


def read_best(out: Path) -> dict[str, Any] | None:
    """The step and values of the best weights so far; None before the first validation."""
    path = out / _BEST_FOLDER / "best.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def load_best(out: Path, module: nn.Module) -> None:
    """Give ``module`` the best weights of the run in ``out``."""
    stored = safetensors.torch.load_file(out / _BEST_FOLDER / _AVERAGE_FILE)
    with torch.no_grad():
        for name, parameter in trained_tensors(module).items():
            parameter.copy_(stored[name])
