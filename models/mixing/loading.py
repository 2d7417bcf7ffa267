"""From the models that a mix names to its tensors."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from models.card import ScorerCard, WeightsCard, read_card
from models.catalog import CaptionerEntry
from models.checkpoints import read_parts
from models.errors import CheckpointError
from models.mixing.references import find_all, model_files, weights_of
from models.mixing.weight_space import WeightSpace


def read_weights(folder: Path, models_dir: Path | None = None) -> tuple[Path, dict[str, Tensor]]:
    """The tensors of a captioner, stored or mixed, and the folder of its config and tokenizer.

    Raises:
        CheckpointError: a file is missing or damaged, or a model that a mix names is absent or another one.
    """
    card = read_card(folder)
    if isinstance(card, ScorerCard):
        raise CheckpointError("bad_card", f"{folder} holds a {card.kind}, not the weights of a captioner")
    if isinstance(card, WeightsCard):
        return folder, read_parts(folder, card, models_dir)
    base, directions = find_all(card, folder, models_dir)
    if base.card.family != card.family:
        raise CheckpointError("bad_card", f"{folder} says family {card.family!r}, its base is {base.card.family!r}")
    used = {name: entry for name, entry in directions.items() if card.coefficients[name]}
    space = load_weight_space(base, used, models_dir)
    coefficients = {name: card.coefficients[name] for name in used}
    return weights_of(base)[0], space.mix(coefficients)


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
