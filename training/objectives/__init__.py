"""Training objectives: the table, and how a name with options becomes an objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from models.lookup import resolve
from training.negatives import NegativeOptions
from training.objectives.interface import Need, Objective, Resources
from training.options import parse_options

OBJECTIVES = {
    "mle": "training.objectives.mle:Mle",
    "smile": "training.objectives.smile:Smile",
    "unkt": "training.objectives.unkt:Unkt",
    "contrastive": "training.objectives.contrastive:Contrastive",
    "retrieval": "training.objectives.retrieval:Retrieval",
    "scst": "training.objectives.scst:Scst",
}


@dataclass(frozen=True)
class ChosenObjective:
    """An objective with checked options, which can say what it needs before that is there."""

    kind: type[Objective]
    options: BaseModel

    @property
    def needs(self) -> frozenset[Need]:
        return self.kind.needs(self.options)

    @property
    def negatives(self) -> NegativeOptions | None:
        return self.kind.negatives(self.options)

    def build(self, resources: Resources | None = None) -> Objective:
        """The objective, ready to train with."""
        return self.kind(self.options, resources)


def choose_objective(name: str, options: Mapping[str, Any]) -> ChosenObjective:
    """The objective ``name`` with checked options.

    Raises:
        UnknownNameError: no such objective.
        RequestError: ``invalid_request``, the options do not fit it.
    """
    kind = resolve("objective", OBJECTIVES, name)
    return ChosenObjective(kind, parse_options(f"objective {name!r}", kind.Options, options))
