"""One mix of models: which, how much of each, and what its card says of where it comes from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from models.card import Named, WeightsCard
from models.catalog import CaptionerEntry
from models.errors import RequestError
from models.mixing.coefficients import check_coefficients
from models.mixing.loading import load_weight_space
from models.mixing.references import weights_of

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Mix:
    """A point in the space of a base and its directions, and what it is called.

    Raises:
        RequestError, UnknownNameError: as ``check_coefficients``, and for a direction without a coefficient.
        CheckpointError: one of the models is itself a mix, or has no card.
    """

    id: str
    base: CaptionerEntry
    directions: Mapping[str, CaptionerEntry]
    coefficients: Mapping[str, float]
    description: str | None = None
    """None: that of the one model that it is, or the sum itself, such as "concise + 0.5 smile"."""
    models_dir: Path | None = None

    def __post_init__(self) -> None:
        check_coefficients(self.coefficients, self.directions)
        if left := sorted(self.directions.keys() - self.coefficients.keys()):
            raise RequestError("invalid_request", f"direction {left[0]!r} has no coefficient")
        for entry in self.models:
            weights_of(entry)

    @property
    def models(self) -> list[CaptionerEntry]:
        """The base and the directions' models."""
        return [self.base, *self.directions.values()]

    @property
    def used(self) -> dict[str, float]:
        """The coefficients other than 0."""
        return check_coefficients(self.coefficients, self.directions)

    def tensors(self) -> dict[str, Tensor]:
        """The weights. Raises as ``load_weight_space`` and ``WeightSpace.mix`` do."""
        return load_weight_space(self.base, self.directions, self.models_dir).mix(self.coefficients)

    def sole_model(self) -> tuple[Path, WeightsCard] | None:
        """Folder and card of the one model whose weights the mix has; None for a true mix."""
        if not self.used:
            return weights_of(self.base)
        name, value = next(iter(self.used.items()))
        return weights_of(self.directions[name]) if len(self.used) == 1 and value == 1 else None

    def provenance(self) -> dict[str, Any]:
        """The fields of the card of the mix: licences, data and origins are those of all models that are in it,
        decoding is the base's, or that of the one model that it is."""
        cards = [weights_of(entry)[1] for entry in (self.base, *(self.directions[name] for name in self.used))]
        sole = self.sole_model()
        terms = [f"{'+' if value > 0 else '-'} {abs(value):g} {name}" for name, value in self.used.items()]
        return {
            "id": self.id,
            "family": cards[0].family,
            "description": self.description or (sole[1].description if sole else " ".join([self.base.id, *terms])),
            "licence": "; ".join(_distinct(card.licence for card in cards)),
            "data": _distinct(source for card in cards for source in card.data),
            "origin": _distinct(work for card in cards for work in card.origin),
            "decoding": (sole[1] if sole else cards[0]).decoding,
        }

    def history(self) -> dict[str, Any]:
        """The fields of the card of written weights that say how they were made."""
        sole = self.sole_model()
        if sole is None:
            cards = [weights_of(self.directions[name])[1] for name in self.used]
            objectives, revisions = (
                _distinct(getattr(card, key) for card in cards) for key in ("objective", "git_revision")
            )
            if len(objectives) == 1 and set(self.used.values()) == {1 / len(self.used)}:  # the mean of runs alike
                return {"objective": objectives[0], "git_revision": revisions[0] if len(revisions) == 1 else None}
            return {"objective": Named(name="mix", options=dict(self.used))}
        return {"objective": sole[1].objective, "seed": sole[1].seed, "git_revision": sole[1].git_revision}


def _distinct(items: Iterable[_Item]) -> list[_Item]:
    found: list[_Item] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found
