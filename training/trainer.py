"""``transformers.Trainer`` around a module with a loss: what is ours is the seeding and how checkpoints are kept."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from models.checkpoints import replace_folder
from models.errors import DataError
from training import workers
from training.averaging import WeightAverage, trained_tensors
from training.progress import ProgressBar, StepStatistics, event_files
from training.seeds import seed_of

logger = logging.getLogger(__name__)

_TRAINED_FILE = "trained.safetensors"
_AVERAGE_FILE = "average.safetensors"
_STATE_FILE = "objective.safetensors"
_BEST_FILE = "best.safetensors"
_KEPT_CHECKPOINTS = 2


class Selection(Protocol):
    """Which validation is the best."""

    @property
    def metric(self) -> str: ...

    @property
    def mode(self) -> Literal["max", "min"]: ...


class StepTrainer(Trainer):
    """Trains a module whose forward gives ``loss`` and its parts; what is validated and kept is the moving average.

    Every random draw of a step is seeded by (seed, step), and checkpoints appear by renaming: a run that is killed and
    started again ends in the same weights, bit for bit on a CPU with the same number of threads.

    Where several workers share the run (``training.workers``), each has its own part of every batch, and the loss is
    that of one worker on the whole batch. Only the first one validates and writes.
    """

    def __init__(
        self,
        module: nn.Module,
        args: TrainingArguments,
        dataset: Any,
        validate: Callable[[], dict[str, float]],
        *,
        groups: list[dict[str, Any]],
        average_decay: float,
        select: Selection,
        patience: int | None = None,
        tensorboard: bool = False,
    ) -> None:
        """``validate`` measures the module as it stands; ``patience`` is in validations.

        Raises:
            MissingDependencyError: ``tensorboard`` is asked for and absent.
        """
        super().__init__(model=module, args=args, train_dataset=dataset, eval_dataset=dataset)
        self.remove_callback(PrinterCallback)
        self.module = module
        self.average = WeightAverage(module, average_decay)
        self.add_callback(_Averaging(self.average))
        self._validate = validate
        self._groups = groups
        self._select = select
        self._patience = patience
        self._saving_to: str | None = None
        self._statistics = StepStatistics()
        self._bar = ProgressBar(self._statistics)
        self.add_callback(self._bar)
        if tensorboard:
            self.add_callback(event_files(self._out / "tensorboard"))

    def create_optimizer(self, *_: Any) -> Any:
        self.optimizer = torch.optim.AdamW(self._groups, lr=self.args.learning_rate, betas=(0.9, 0.98), fused=True)
        return self.optimizer

    # --- steps --------------------------------------------------------------------------------------------------

    def train(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().train(*args, **kwargs)
        finally:
            self._bar.close()

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        # Workers draw apart, so that no two pictures of a step have the same dropout.
        further = ("worker", number) if (number := workers.number()) else ()
        torch.manual_seed(seed_of(self.args.seed, "step", self.state.global_step, *further))
        loss: Tensor = super().training_step(model, inputs, *args, **kwargs)
        if not torch.isfinite(loss):
            of = self.name_batch(inputs)
            raise DataError(
                "not_finite", f"the loss is {float(loss)} at step {self.state.global_step}{of}: lower the rate"
            )
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Any:
        outputs = model(**inputs)
        share = self._share(inputs)
        parts = {name: part for name, part in outputs.items() if name != "loss"}
        self._statistics.add(parts, self.count_tokens(inputs), share)
        return outputs["loss"] * share

    def _share(self, inputs: dict[str, Any]) -> float:
        """What the loss here is multiplied by, so that the mean over the workers is the mean over all their units."""
        own = self.count_units(inputs)
        (everything,) = workers.totals([own])
        return own * workers.count() / everything if everything else 1.0

    def name_batch(self, inputs: dict[str, Any]) -> str:
        """What is in a batch, for an error message; empty where nothing is to be said."""
        return ""

    def count_tokens(self, inputs: dict[str, Any]) -> int:
        """Target tokens of a batch, for the speed in the log."""
        return 0

    def count_units(self, inputs: dict[str, Any]) -> int:
        """What the loss of a batch is a mean over, such as its tokens; by default every batch counts alike."""
        return 1

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        logs = {**logs, **(self._statistics.take() if "loss" in logs else {})}
        super().log(logs, *args, **kwargs)
        if self.is_world_process_zero():
            logger.info("step %d/%d: %s", self.state.global_step, self.state.max_steps, json.dumps(logs))

    def store_flos(self) -> None:
        """Nothing: transformers counts them for its own models only, and would wait for every worker here."""

    # --- validation ---------------------------------------------------------------------------------------------

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Validate the averaged weights, and keep them when they are the best so far."""
        values, stop = workers.from_first(self._validate_and_keep)
        metrics = {f"eval_{name}": value for name, value in values.items()}
        self.log(metrics)
        if stop:
            self.control.should_training_stop = True
        self.control.should_evaluate = False  # the trainer would validate the last step again at the end of the epoch
        return metrics

    def _validate_and_keep(self) -> tuple[dict[str, float], bool]:
        """What was measured, and whether training should stop."""
        with self.average.applied():
            values = self._validate()
        if self._select.metric not in values:
            raise DataError("bad_recipe", f"select.metric {self._select.metric!r} is none of: {', '.join(values)}")
        best = read_best(self._out)
        if best is None or self._better(values, best["values"]):
            self._keep_best(values)
            return values, False
        stop = bool(self._patience) and self._validations_since(best["step"]) >= int(self._patience or 0)
        if stop:
            logger.info("no better validation since step %d: training stops", best["step"])
        return values, stop

    @property
    def _out(self) -> Path:
        return Path(str(self.args.output_dir))

    def _better(self, values: Mapping[str, float], than: Mapping[str, float]) -> bool:
        name = self._select.metric
        return values[name] > than[name] if self._select.mode == "max" else values[name] < than[name]

    def _validations_since(self, step: int) -> int:
        return (self.state.global_step - step) // int(self.args.eval_steps or 1)

    def _keep_best(self, values: Mapping[str, float]) -> None:
        path = self._out / _BEST_FILE
        draft = path.with_name(f".{path.name}.partial")
        record = {"step": self.state.global_step, "values": dict(values)}
        safetensors.torch.save_file(self.average.tensors, draft, metadata={"best": json.dumps(record)})
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)  # one move: a kill leaves the old best or the new one

    # --- checkpoints --------------------------------------------------------------------------------------------

    def further_state(self) -> dict[str, Tensor]:
        """What a resumed run needs beyond weights and optimizer."""
        return {}

    def restore_further_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from ``further_state`` of an earlier run."""

    def _get_output_dir(self, trial: Any) -> str:
        return self._saving_to or str(super()._get_output_dir(trial))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        workers.from_first(lambda: self._write_checkpoint(model, trial))
        self.control.should_save = False  # the trainer would save the last step again at the end of the epoch

    def _write_checkpoint(self, model: Any, trial: Any) -> None:
        draft = self._out / ".checkpoint.partial"
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
        replace_folder(written, self._out / written.name)
        draft.rmdir()
        for old in checkpoints(self._out)[:-_KEPT_CHECKPOINTS]:
            shutil.rmtree(old)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        trained = {name: tensor.detach().contiguous() for name, tensor in trained_tensors(self.module).items()}
        safetensors.torch.save_file(trained, folder / _TRAINED_FILE)
        safetensors.torch.save_file(self.average.tensors, folder / _AVERAGE_FILE)
        if state := self.further_state():
            kept = {name: tensor.detach().contiguous().clone() for name, tensor in state.items()}
            safetensors.torch.save_file(kept, folder / _STATE_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        folder = Path(resume_from_checkpoint)
        stored = safetensors.torch.load_file(folder / _TRAINED_FILE)
        with torch.no_grad():
            for name, parameter in trained_tensors(self.module).items():
                parameter.copy_(stored[name])
        self.average.restore(safetensors.torch.load_file(folder / _AVERAGE_FILE))
        if (folder / _STATE_FILE).exists():
            self.restore_further_state(safetensors.torch.load_file(folder / _STATE_FILE))


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
    path = out / _BEST_FILE
    if not path.exists():
        return None
    with safe_open(path, "pt") as file:
        record: dict[str, Any] = json.loads(file.metadata()["best"])
    return record


def load_best(out: Path, module: nn.Module) -> None:
    """Give ``module`` the best weights of the run in ``out``."""
    stored = safetensors.torch.load_file(out / _BEST_FILE)
    with torch.no_grad():
        for name, parameter in trained_tensors(module).items():
            parameter.copy_(stored[name])
