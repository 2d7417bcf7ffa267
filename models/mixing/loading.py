"""From the models that a mix names to its tensors."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from models.card import ArithmeticCard, MixCard, ScorerCard, WeightsCard, read_card
from models.catalog import CaptionerEntry
from models.checkpoints import read_parts
from models.errors import CheckpointError
from models.mixing.coefficients import check_coefficients
from models.mixing.references import find_all, model_files, weights_of
from models.mixing.weight_space import WeightSpace


def read_weights(
    folder: Path, models_dir: Path | None = None, coefficients: Mapping[str, float] | None = None
) -> tuple[Path, dict[str, Tensor]]:
    """The tensors of a captioner, stored or mixed, and the folder of its config and tokenizer.

    Args:
        coefficients: of the directions of a mix or spectrum; None: the card's own, of a spectrum those of its default.

    Raises:
        CheckpointError: a file is missing or damaged, or a model that a mix names is absent or another one.
        UnknownNameError, RequestError: as ``check_coefficients``; also for coefficients of a model that is no mix.
    """
    card = read_card(folder)
    if isinstance(card, ScorerCard):
        raise CheckpointError("bad_card", f"{folder} holds a {card.kind}, not the weights of a captioner")
    if isinstance(card, WeightsCard):
        check_coefficients(coefficients or {}, ())
        return folder, read_parts(folder, card, models_dir)
    base, directions = find_all(card, folder, models_dir)
    if base.card.family != card.family:
        raise CheckpointError("bad_card", f"{folder} says family {card.family!r}, its base is {base.card.family!r}")
    asked = own_coefficients(card) if coefficients is None else coefficients
    used = check_coefficients(asked, directions)
    space = load_weight_space(base, {name: directions[name] for name in used}, models_dir)
    return weights_of(base)[0], space.mix(used)


def own_coefficients(card: ArithmeticCard) -> dict[str, float]:
    """How far a mix goes along each direction, or a spectrum where nobody asks for anything."""
    return card.coefficients if isinstance(card, MixCard) else card.nearest(card.default).coefficients


def load_weight_space(
    base: CaptionerEntry, directions: Mapping[str, CaptionerEntry], models_dir: Path | None = None
) -> WeightSpace:
    """The space that the directions span around the base.

    Raises:
        CheckpointError: one of them cannot be read, or is of another architecture or vocabulary than the base.
    """
    path, card = weights_of(base)
    for name, entry in directions.items():
        _check_same_architecture(name, card, weights_of(entry)[1])
    tensors = {name: read_parts(*weights_of(entry), models_dir) for name, entry in directions.items()}
    return WeightSpace(read_parts(path, card, models_dir), tensors)


def _check_same_architecture(direction: str, base: WeightsCard, other: WeightsCard) -> None:
    if other.family != base.family:
        raise CheckpointError(
            "bad_config",
            f"direction {direction!r} ({other.id}) is of the family {other.family!r}, the base {base.family!r}",
        )
    expected, found = model_files(base), model_files(other)
    if odd := sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)):
        raise CheckpointError(
            "bad_config",
            f"direction {direction!r} ({other.id}) does not fit the base {base.id}: their {odd[0]} differ; only models "
            "fine-tuned from the base, with its config and tokenizer, are directions",
        )
