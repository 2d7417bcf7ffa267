"""A captioner in memory, and the others that its weight space holds."""

from collections.abc import Mapping
from pathlib import Path

from models.card import ArithmeticCard
from models.catalog import CaptionerEntry
from models.families.base import TorchCaptioner
from models.mixing.coefficients import check_coefficients
from models.mixing.loading import load_weight_space
from models.mixing.references import find_all
from models.mixing.weight_space import WeightSpace


class Variants:
    """Captioners at other points of a weight space than the base's, made on request; they share what they can."""

    def __init__(self, base: TorchCaptioner, space: WeightSpace) -> None:
        self.base = base
        """The captioner where every coefficient is 0."""
        self._space = space
        moved = {
            key for tensors in space.directions.values() for key, end in tensors.items() if end is not space.base[key]
        }
        self.bytes_of_one: int = sum(space.base[key].numel() for key in moved) * base.dtype.itemsize
        """Memory that a captioner takes beside the base."""

    def at(self, coefficients: Mapping[str, float]) -> TorchCaptioner:
        """The captioner there; at 0 the base itself. Raises as ``WeightSpace.mix`` does."""
        if not check_coefficients(coefficients, self._space.directions):
            return self.base
        mixed = self._space.mix(coefficients)
        return self.base.with_weights(
            {key: tensor for key, tensor in mixed.items() if tensor is not self._space.base[key]}
        )


def load_variants(base: TorchCaptioner, entry: CaptionerEntry, models_dir: Path | None = None) -> Variants:
    """The captioners that the card of a mix or spectrum speaks of, around one that was loaded at coefficients 0.

    Raises:
        CheckpointError: as ``find_all`` and ``load_weight_space``.
    """
    assert isinstance(entry.card, ArithmeticCard) and entry.path is not None
    found, directions = find_all(entry.card, entry.path, models_dir)
    return Variants(base, load_weight_space(found, directions, models_dir))
