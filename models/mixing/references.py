"""How a card names another checkpoint and makes sure that it is still the same one. Loads no torch."""

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePath

from models.card import ArithmeticCard, DeltaPart, MixCard, Reference, SharedPart, SpectrumCard, WeightsCard
from models.catalog import CaptionerEntry, find_beside, find_part
from models.errors import CheckpointError
from models.file_hashes import verify_files

_MODEL_FILES = (".json", ".model", ".txt")
"""Endings of configs, tokenizers and vocabularies; others, such as the recipe, say where a model comes from."""


def model_files(card: WeightsCard) -> dict[str, str]:
    """sha256 of the config and tokenizer files: models in which they are equal have one architecture and vocabulary."""
    return {name: sha256 for name, sha256 in card.files.items() if PurePath(name).suffix in _MODEL_FILES}


def fingerprint(folder: Path, card: WeightsCard, models_dir: Path | None = None) -> str:
    """The sha256 of the sorted lines "NAME SHA256" of all that makes a checkpoint's captions: its config and tokenizer
    files and the files of its parts. Measurements and descriptions may change without changing it.

    Raises:
        CheckpointError: ``missing_file``, a part of another model is nowhere.
    """
    lines = [f"{name} {sha256}\n" for name, sha256 in model_files(card).items()]
    lines += [f"{name} {sha256}\n" for name, sha256 in _part_hashes(folder, card, models_dir)]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def _part_hashes(folder: Path, card: WeightsCard, models_dir: Path | None) -> Iterator[tuple[str, str]]:
    for name, part in card.parts.items():
        file = find_part(part, folder, models_dir)[1] if isinstance(part, SharedPart) else part
        yield f"part/{name}", part.sha256 or file.sha256
        if isinstance(file, DeltaPart):
            yield f"part/{name}/base", file.base.sha256


def weights_of(entry: CaptionerEntry) -> tuple[Path, WeightsCard]:
    """Folder and card of a captioner that can be mixed.

    Raises:
        CheckpointError: ``bad_card``; it is itself a mix, or has no card of its own.
    """
    if entry.path is None or not isinstance(entry.card, WeightsCard) or not entry.card.parts:
        made = {MixCard: "a mix itself", SpectrumCard: "a spectrum of mixes"}
        what = made.get(type(entry.card), "no checkpoint folder of limner's")
        raise CheckpointError(
            "bad_card", f"{entry.id!r} is {what}: only checkpoints with weights and a card can be mixed"
        )
    return entry.path, entry.card


def reference_to(entry: CaptionerEntry, folder: Path, models_dir: Path | None = None) -> Reference:
    """How a card in ``folder`` names a model.

    Raises:
        CheckpointError: ``missing_file``; from ``folder`` that id does not lead to this model.
    """
    path, card = weights_of(entry)
    reference = Reference(model=entry.id, sha256=fingerprint(path, card, models_dir))
    try:
        find_reference(reference, folder, models_dir)
    except CheckpointError as error:
        raise CheckpointError(
            "missing_file",
            f"a card names models by id, and from {folder} the id {entry.id!r} does not lead to {path}: write beside "
            "it, or write weights instead of a card",
        ) from error
    return reference


def find_reference(reference: Reference, folder: Path, models_dir: Path | None = None) -> CaptionerEntry:
    """The model that the card in ``folder`` names.

    Raises:
        CheckpointError: ``missing_file``, it is nowhere; ``hash_mismatch``, it is not what the card was written for.
    """
    entry = find_beside(reference.model, folder, models_dir)
    if not isinstance(entry, CaptionerEntry):
        raise CheckpointError(
            "missing_file",
            f"{folder} needs the captioner {reference.model!r}, which is neither beside it nor in the models folder "
            "nor bundled",
        )
    found = fingerprint(*weights_of(entry), models_dir)
    if found != reference.sha256:
        raise CheckpointError(
            "hash_mismatch",
            f"{folder} was mixed from another {reference.model!r} than {entry.path}: its fingerprint is {found[:16]}…, "
            f"the card says {reference.sha256[:16]}…; restore that model or write the mix again",
        )
    return entry


def find_all(
    card: ArithmeticCard, folder: Path, models_dir: Path | None = None
) -> tuple[CaptionerEntry, dict[str, CaptionerEntry]]:
    """The base of what is mixed in ``folder``, and the models of its directions. Raises as ``find_reference`` does."""
    directions = {name: find_reference(each, folder, models_dir) for name, each in card.directions.items()}
    return find_reference(card.base, folder, models_dir), directions


def verify_mix(card: ArithmeticCard, folder: Path, models_dir: Path | None = None) -> None:
    """Check that the models that are mixed are those the card was made from, and their files too. Raises as ``verify``
    does."""
    base, directions = find_all(card, folder, models_dir)
    for entry in (base, *directions.values()):
        path, weights = weights_of(entry)
        verify_files(path, weights)
