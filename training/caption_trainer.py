"""The training of a captioner by an objective."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from models.families.base import TorchCaptioner
from training.batches import CaptionItems, StepBatches
from training.objectives.interface import Batch, Objective
from training.trainer import StepTrainer
from training.validation import Validation


class TrainedModule(nn.Module):
    """A captioner and its objective as the one module that the trainer calls."""

    def __init__(self, captioner: TorchCaptioner, objective: Objective) -> None:
        super().__init__()
        self.captioner = captioner
        self.objective = objective

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        loss = self.objective(self.captioner, batch)
        return {"loss": loss.total, **loss.parts}


class CaptionTrainer(StepTrainer):
    """Batches of captioned pictures, which know where in the run they are."""

    def __init__(
        self,
        module: TrainedModule,
        args: TrainingArguments,
        items: CaptionItems,
        batches: StepBatches,
        validation: Validation,
        *,
        collate: Callable[[Any], dict[str, Batch]],
        **settings: Any,
    ) -> None:
        """``settings`` as ``StepTrainer`` takes them."""
        super().__init__(module, args, items, lambda: validation.run(module.captioner), **settings)
        self.captions = module
        self._items = items
        self.batches = batches
        self._collate = collate

    def get_train_dataloader(self) -> Any:
        # Not prepared by accelerate, which would give each worker batches of its own instead of parts of each batch.
        return DataLoader(self._items, batch_sampler=self.batches, collate_fn=self._collate)

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        step, steps = self.state.global_step, self.state.max_steps
        at = replace(inputs["batch"], step=step, steps=steps, steps_per_epoch=self.batches.steps_per_epoch)
        return {"batch": at.to(self.args.device)}

    def name_batch(self, inputs: dict[str, Any]) -> str:
        ids = [self._items.image_id(int(index)) for index in inputs["batch"].images]
        return f" on the images {', '.join(ids)}"

    def count_tokens(self, inputs: dict[str, Any]) -> int:
        return len(inputs["batch"].captions.targets.labels)

    def count_units(self, inputs: dict[str, Any]) -> int:
        return self.captions.objective.count_units(inputs["batch"])

    def further_state(self) -> dict[str, Tensor]:
        return self.captions.objective.state_dict()

    def restore_further_state(self, state: Mapping[str, Tensor]) -> None:
        self.captions.objective.load_state_dict(state)
