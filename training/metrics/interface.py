"""What a metric is given, what it declares and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    import torch

    from models.interfaces import FinishReason

Need = Literal["references", "finish_reasons", "scorer"]


@dataclass(frozen=True)
class Tokenized:
    """Captions and references as space-joined tokens of one tokeniser, by image."""

    tokenizer: str
    captions: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class ScorerFeatures:
    """Unit features (N, D) of the images and of their captions under one scorer."""

    scorer: str
    prefix: str
    weight: float
    images: torch.Tensor
    texts: torch.Tensor
    """The captions as they are: what retrieval uses."""
    prefixed_texts: torch.Tensor
    """The captions after the scorer's prefix: what CLIPScore uses."""


@dataclass(frozen=True)
class MetricInputs:
    """N images with one caption each, all in the same order; what was not given is None."""

    image_ids: tuple[str, ...]
    captions: tuple[str, ...]
    tokenized: Tokenized | None = None
    finish_reasons: tuple[FinishReason, ...] | None = None
    features: ScorerFeatures | None = None

    @property
    def gives(self) -> frozenset[Need]:
        """The needs that these inputs meet."""
        given: dict[Need, Any] = {
            "references": self.tokenized,
            "finish_reasons": self.finish_reasons,
            "scorer": self.features,
        }
        return frozenset(need for need, value in given.items() if value is not None)


@dataclass(frozen=True)
class Definition:
    """What a number means, for the reader of a table."""

    text: str
    table_scale: float = 1.0
    """Tables show the value times this, as the literature does: 100 for shares, BLEU and CIDEr."""


@dataclass(frozen=True)
class Measurement:
    """One number with what is needed to read it."""

    metric: str
    name: str
    value: float
    definition: str
    table_scale: float
    tokenizer: str | None
    scorer: str | None
    notes: tuple[str, ...]


class Metric(ABC):
    """One file per metric; the evaluation knows none by name."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

    def __init__(self, options: Any = None) -> None:
        self.options: Any = self.Options() if options is None else options

    @abstractmethod
    def definitions(self) -> Mapping[str, Definition]:
        """The definition of every number that ``compute`` returns."""

    @abstractmethod
    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        """The numbers by name, all finite; ``inputs`` gives at least what ``needs`` lists."""

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        """What a reader of these numbers must be told about these inputs."""
        return ()
