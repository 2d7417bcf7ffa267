"""Training objectives: the table, and what every objective is given and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import BaseModel

from models.lookup import resolve
from training.options import parse_options

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from models.families.compact import CompactCaptioner

OBJECTIVES = {"mle": "training.objectives.mle:Mle"}

IGNORE = -100
"""The label of positions that are no target: prompt, padding. Never told by a token id."""


@dataclass(frozen=True)
class Batch:
    """B pictures; row b packs all captions of picture b, told apart by ``segments``."""

    features: Tensor
    """(B, C, h, w) output of the captioner's frozen encoder half."""
    input_ids: Tensor
    """(B, T); every caption begins with the start token."""
    labels: Tensor
    """(B, T): the token that follows, the end token last; ``IGNORE`` elsewhere."""
    segments: Tensor
    """(B, T): number of the caption within its row, -1 for padding."""

    def to(self, device: torch.device) -> Batch:
        """The batch on another device."""
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True)
class Loss:
    """What an objective returns: the total to minimise and its parts by name, for the log."""

    total: Tensor
    parts: dict[str, Tensor]


class Objective(Protocol):
    """A loss over a batch. Draws random numbers from torch's generator, which the trainer seeds at every step."""

    Options: ClassVar[type[BaseModel]]

    def __init__(self, options: Any) -> None: ...

    def __call__(self, captioner: CompactCaptioner, batch: Batch) -> Loss: ...


def build_objective(name: str, options: Mapping[str, Any]) -> Objective:
    """The objective ``name`` with checked options.

    Raises:
        UnknownNameError: no such objective.
        RequestError: ``invalid_request``, the options do not fit it.
    """
    kind = resolve("objective", OBJECTIVES, name)
    objective: Objective = kind(parse_options(f"objective {name!r}", kind.Options, options))
    return objective
