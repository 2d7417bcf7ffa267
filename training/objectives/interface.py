"""What an objective is given, what it declares and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from models.interfaces import TeacherForced

if TYPE_CHECKING:
    from models.clip_scorer import ClipScorer
    from models.families.base import TorchCaptioner
    from training.data import Example
    from training.negatives import NegativeOptions

IGNORE = -100
"""The label of positions that are no target: prompt, padding. Never told by a token id."""

Need = Literal["reference", "teacher", "scorer"]


class _Tensors:
    """A frozen record whose tensors, and records of tensors, move together."""

    def to(self, device: torch.device) -> Self:
        """The record on another device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        moved = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor | _Tensors)}
        return replace(self, **moved)  # type: ignore[type-var]


@dataclass(frozen=True)
class Targets(_Tensors):
    """The N tokens that a loss is over, one after the other, and which of the C captions each belongs to."""

    labels: Tensor
    """(N,) token ids; the end token is each caption's last."""
    caption: Tensor
    """(N,) number of the caption, 0 to C-1, not falling."""
    row: Tensor
    """(C,) the row that holds the caption."""

    @property
    def first(self) -> Tensor:
        """(N,), True for the first target of each caption."""
        before = torch.cat([self.caption.new_full((1,), -1), self.caption[:-1]])
        return self.caption != before

    def sum_by_caption(self, values: Tensor) -> Tensor:
        """Sums (C,) of values (N,) over the targets of each caption."""
        return values.new_zeros(len(self.row)).index_add(0, self.caption, values)

    def padded(self, fill: int) -> Tensor:
        """The labels of each caption as a row (C, L), ``fill`` behind them."""
        counts = torch.bincount(self.caption, minlength=len(self.row))
        place = torch.arange(len(self.caption), device=self.caption.device)
        place = place - (counts.cumsum(0) - counts)[self.caption]  # place of a target within its caption
        out = self.labels.new_full((len(self.row), int(counts.max()) if len(counts) else 0), fill)
        out[self.caption, place] = self.labels
        return out


@dataclass(frozen=True)
class Rows(_Tensors):
    """Captions as R rows of T tokens, R a multiple of the B pictures; a row holds one caption or packs several."""

    input_ids: Tensor
    """(R, T); every caption begins with the start token."""
    labels: Tensor
    """(R, T): the token that follows, the end token last; ``IGNORE`` elsewhere."""
    segments: Tensor
    """(R, T): number of the caption within its row, -1 for padding."""

    @property
    def is_target(self) -> Tensor:
        """(R, T), True where there is a label."""
        return self.labels != IGNORE

    @cached_property
    def targets(self) -> Targets:
        """All targets, in the order of the rows."""
        rows, columns = self.is_target.nonzero(as_tuple=True)
        most = int(self.segments.max()) + 1 if self.segments.numel() else 1
        numbers, caption = torch.unique_consecutive(rows * most + self.segments[rows, columns], return_inverse=True)
        return Targets(self.labels[rows, columns], caption, numbers // most)


@dataclass(frozen=True)
class Batch(_Tensors):
    """B pictures with captions, and where in the run the step is."""

    images: Tensor
    """(B,) indices of the training examples."""
    features: Tensor
    """(B, ...) output of the captioner's frozen encoder half."""
    captions: Rows
    negatives: Rows | None = None
    """Captions of other pictures; as many rows for each picture, its own adjacent."""
    step: int = 0
    steps: int = 1
    """Steps of the whole run."""
    steps_per_epoch: int = 1


@dataclass(frozen=True)
class Resources:
    """What an objective may use besides the batch; what it did not declare is None."""

    examples: Sequence[Example] = ()
    """The training examples, in the order that ``Batch.images`` counts."""
    seed: int = 0
    reference: TorchCaptioner | None = None
    """The captioner that training starts from: a frozen copy in eval mode."""
    teacher: TorchCaptioner | None = None
    """The captioner that the option ``teacher`` names, frozen, in eval mode."""
    scorer: ClipScorer | None = None
    """The scorer that the option ``scorer`` names."""
    image_features: Tensor | None = None
    """(N, D) features of the training examples under the scorer, not normalised."""


@dataclass(frozen=True)
class Loss:
    """What an objective returns: the total to minimise and its parts by name, for the log."""

    total: Tensor
    parts: dict[str, Tensor]


class Objective(ABC):
    """A loss over a batch; one file per objective, and the trainer knows none by name.

    Random numbers come from torch's generator, which the trainer seeds at every step.
    """

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, options: Any, resources: Resources | None = None) -> None:
        self.options: Any = options
        self.resources = resources or Resources()

    @classmethod
    def needs(cls, options: Any) -> frozenset[Need]:
        """Which of the resources the objective reads."""
        return frozenset()

    @classmethod
    def negatives(cls, options: Any) -> NegativeOptions | None:
        """How ``Batch.negatives`` are drawn; None where the objective reads none."""
        return None

    @abstractmethod
    def __call__(self, captioner: TorchCaptioner, batch: Batch) -> Loss:
        """The loss of one step; the captioner is in train mode, the gradient reaches its trainable parameters."""

    def count_units(self, batch: Batch) -> int:
        """What the loss of the batch is a mean over: by default its target tokens.

        Workers that share a batch weight their losses by it, so that together they have the mean of the whole batch.
        """
        return len(batch.captions.targets.labels)

    def state_dict(self) -> dict[str, Tensor]:
        """What a resumed run needs beyond the weights, such as a reference that changed."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from ``state_dict`` of an earlier run; nothing to do where that is empty."""
        assert not state


def teacher_force(captioner: TorchCaptioner, memory: Any, rows: Rows, **outputs: bool) -> TeacherForced:
    """Logits (N, V) and states (N, D) of the targets of ``rows``; ``outputs`` as ``forward_teacher`` takes them."""
    packed = "packing" in captioner.capabilities
    return captioner.forward_teacher(
        memory,
        rows.input_ids,
        (rows.segments >= 0).long(),
        segments=rows.segments if packed else None,
        at=rows.is_target,
        **outputs,
    )
