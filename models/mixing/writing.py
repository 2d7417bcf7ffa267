"""Mixes as checkpoint folders: a card alone, weights, or weights as int8 or int4 differences to the base."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.card import DeltaPart, Direction, FilePart, MixCard, PinnedPart, SharedPart, WeightsCard
from models.catalog import find_part
from models.checkpoints import read_each_part, write_checkpoint
from models.errors import CheckpointError, RequestError
from models.mixing.mix import Mix
from models.mixing.quantised_delta import Bits, apply_delta, quantise_delta, relative_error
from models.mixing.references import model_files, reference_to, weights_of

Parts = Mapping[str, Mapping[str, Tensor]]


def write_mix_card(folder: Path, mix: Mix) -> MixCard:
    """Write a folder with a card alone and return it; the weights are computed whenever it is loaded.

    Raises:
        CheckpointError: the models do not fit, or their ids do not lead to them from ``folder``.
    """
    _refuse_to_replace(folder, mix)
    mix.tensors()  # refuses now what could not be loaded later
    directions = {
        name: Direction(**dict(reference_to(entry, folder, mix.models_dir)), coefficient=mix.coefficients[name])
        for name, entry in mix.directions.items()
    }
    base = reference_to(mix.base, folder, mix.models_dir)
    card = MixCard(**mix.provenance(), base=base, directions=directions)
    write_checkpoint(folder, lambda parts, files: card, {}, lambda draft: None)
    return card


def write_weights(folder: Path, mix: Mix) -> WeightsCard:
    """Write the mix as a checkpoint and return its card.

    A part that equals the base's is not written again where the base's id leads to it from ``folder``.

    Raises:
        CheckpointError: the models do not fit.
    """
    _refuse_to_replace(folder, mix)
    split = _split(folder, mix)
    return _write(folder, mix, split.own, split.shared)


def write_differences(folder: Path, mix: Mix, bits: Bits = 8) -> tuple[WeightsCard, float]:
    """Write the mix as a checkpoint of int8 or int4 differences to the base.

    Returns:
        Its card, and how much of the difference is lost (``relative_error``).

    Raises:
        CheckpointError: the models do not fit, or the base's id does not lead to it from ``folder``.
    """
    _refuse_to_replace(folder, mix)
    split = _split(folder, mix)
    pinned = {name: _base_of_delta(folder, mix, name) for name in split.own}
    deltas = {name: quantise_delta(split.base[name], tensors, bits) for name, tensors in split.own.items()}
    restored = {name: apply_delta(split.base[name], delta, folder) for name, delta in deltas.items()}
    error = relative_error(_flat(split.base), _flat(split.own), _flat(restored))
    return _write(folder, mix, deltas, split.shared, pinned), error


@dataclass(frozen=True)
class _Split:
    """The base's parts, those of the mix, and those of them that are the base's and can be named."""

    base: Parts
    own: Parts
    shared: Mapping[str, PinnedPart]


def _split(folder: Path, mix: Mix) -> _Split:
    base = read_each_part(*weights_of(mix.base), mix.models_dir)
    tensors = mix.tensors()
    own, shared = {}, {}
    for name, stored in base.items():
        untouched = all(torch.equal(tensors[key], tensor) for key, tensor in stored.items())
        if untouched and (part := _named(folder, mix, name)):
            shared[name] = part
        else:
            own[name] = {key: tensors[key] for key in stored}
    return _Split(base, own, shared)


def _named(folder: Path, mix: Mix, name: str) -> PinnedPart | None:
    """How a card in ``folder`` names a part of the base, wherever it lies; None if the names lead elsewhere."""
    path, card = weights_of(mix.base)
    part = card.parts[name]
    if isinstance(part, SharedPart):
        model, owned = part.model, part.part
        place, file = find_part(part, path, mix.models_dir)
    else:
        model, owned, place, file = mix.base.id, name, path, part
    try:
        found, _ = find_part(SharedPart(model=model, part=owned), folder)
    except CheckpointError:
        return None
    if found.resolve() != place.resolve() or found.resolve() == folder.resolve():
        return None
    return PinnedPart(model=model, part=owned, sha256=file.sha256)


def _base_of_delta(folder: Path, mix: Mix, name: str) -> PinnedPart:
    part = _named(folder, mix, name)
    if part is None or isinstance(find_part(part, folder)[1], DeltaPart):
        raise CheckpointError(
            "missing_file",
            f"differences name the base by id, and from {folder} the id {mix.base.id!r} does not lead to a part "
            f"{name!r} that is stored whole: write beside the base, or whole weights",
        )
    return part


def _write(
    folder: Path,
    mix: Mix,
    own: Parts,
    shared: Mapping[str, PinnedPart],
    bases: Mapping[str, PinnedPart] | None = None,
) -> WeightsCard:
    """Write ``own`` parts as they are; those with a base in ``bases`` are differences to it."""
    path, base = weights_of(mix.base)

    def part(name: str, written: Mapping[str, FilePart]) -> FilePart | SharedPart | DeltaPart:
        if name in shared:
            return shared[name]
        file = written[name]
        return DeltaPart(file=file.file, sha256=file.sha256, base=bases[name]) if bases else file

    def make_card(written: dict[str, FilePart], files: dict[str, str]) -> WeightsCard:
        parts = {name: part(name, written) for name in base.parts}
        told = mix.provenance() | mix.history()
        return WeightsCard(**told, parts=parts, files=files)

    def write_files(draft: Path) -> None:
        for name in model_files(base):
            shutil.copyfile(path / name, draft / name)
        if sole := mix.sole_model():  # its recipe too
            for name in sole[1].files.keys() - model_files(base).keys():
                shutil.copyfile(sole[0] / name, draft / name)

    card = write_checkpoint(folder, make_card, own, write_files, dtype=None)
    assert isinstance(card, WeightsCard)
    return card


def _refuse_to_replace(folder: Path, mix: Mix) -> None:
    for entry in mix.models:
        if weights_of(entry)[0].resolve() == folder.resolve():
            raise RequestError("invalid_request", f"{folder} is the model {entry.id!r} of the mix: name another folder")


def _flat(parts: Parts) -> dict[str, Tensor]:
    return {key: tensor for tensors in parts.values() for key, tensor in tensors.items()}
