"""Checkpoint folders: tensors are read only after their hash is verified, and written in one move."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from models.card import CARD_FILE, FilePart, ScorerCard, SharedPart, WeightsCard, dump_card
from models.catalog import BUNDLED, find_by_id
from models.errors import CheckpointError, DataError
from models.file_hashes import file_inside, sha256_of, verify, verify_files


def read_parts(folder: Path, card: WeightsCard, models_dir: Path | None = None) -> dict[str, Tensor]:
    """All tensors of a checkpoint, as stored, its shared parts fetched from the models that own them.

    Raises:
        CheckpointError: a file is missing, damaged or no safetensors file, or two parts hold the same tensor.
            A shared part's model must lie beside the folder, below ``models_dir`` or among the bundled models.
    """
    verify_files(folder, card)
    tensors: dict[str, Tensor] = {}
    for name, part in card.parts.items():
        found = _read_part(folder, part, models_dir)
        if twice := sorted(found.keys() & tensors.keys()):
            raise CheckpointError("wrong_keys", f"{folder}: part {name!r} repeats {twice[0]} of another part")
        tensors |= found
    return tensors


def _read_part(folder: Path, part: FilePart | SharedPart, models_dir: Path | None) -> dict[str, Tensor]:
    if isinstance(part, FilePart):
        path = file_inside(folder, part.file)
        try:
            return safetensors.torch.load_file(path)
        except (SafetensorError, OSError) as error:
            raise CheckpointError("unsafe_file", f"{path} is not a readable safetensors file: {error}") from error
    owner = find_by_id(part.model, (folder.parent, models_dir, BUNDLED))
    shared = owner.card.parts.get(part.part) if owner else None
    if owner is None or owner.path is None or not isinstance(shared, FilePart):
        raise CheckpointError(
            "missing_file",
            f"{folder} needs part {part.part!r} of model {part.model!r}, which is neither beside it nor in the models "
            "folder nor bundled",
        )
    verify(file_inside(owner.path, shared.file), part.sha256 or shared.sha256)
    return _read_part(owner.path, shared, models_dir)


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], source: Path | str) -> None:
    """Copy ``tensors`` into the module, converted to its dtype.

    Raises:
        CheckpointError: ``wrong_keys``, naming what is missing, unexpected or of another shape.
    """
    wanted = module.state_dict()
    missing, unexpected = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or unexpected:
        raise CheckpointError(
            "wrong_keys",
            f"{source} does not fit its config: {len(missing)} tensors missing (first: {missing[:1]}), "
            f"{len(unexpected)} unexpected (first: {unexpected[:1]})",
        )
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise CheckpointError(
                "wrong_keys",
                f"{source}: {name} has shape {tuple(tensor.shape)}, the config asks for {tuple(wanted[name].shape)}",
            )
    module.load_state_dict(dict(tensors))


def write_checkpoint(
    folder: Path,
    make_card: Callable[[dict[str, FilePart], dict[str, str]], WeightsCard | ScorerCard],
    parts: Mapping[str, Mapping[str, Tensor]],
    write_files: Callable[[Path], None],
    dtype: torch.dtype = torch.float16,
) -> WeightsCard | ScorerCard:
    """Write a checkpoint folder in one move and return its card; an existing folder is replaced.

    Args:
        make_card: the card, given the written parts and the sha256 of every further file.
        parts: tensors by part name; floating ones are rounded to ``dtype``. A part is written to ``NAME.safetensors``.
        write_files: writes config and tokenizer files into the folder that it is given.

    Raises:
        CheckpointError: ``bad_card``; the folder holds something else than a checkpoint, which is not thrown away.
        DataError: ``not_finite``; a tensor holds NaN, or what ``dtype`` cannot express.
    """
    if folder.exists() and not (folder / CARD_FILE).is_file() and any(folder.iterdir()):
        raise CheckpointError(
            "bad_card", f"{folder} exists and is no checkpoint: it is not replaced; name another folder"
        )
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        write_files(draft)
        files = {path.name: sha256_of(path) for path in sorted(draft.iterdir())}
        card = make_card(_write_parts(draft, parts, dtype), files)
        (draft / CARD_FILE).write_text(dump_card(card), encoding="utf-8")
        for path in draft.iterdir():
            path.chmod(0o644)  # safetensors writes for the owner alone, and others serve what one user trained
            _sync(path)
        _sync(draft)
        replace_folder(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # gone already when all went well
    return card


def replace_folder(draft: Path, folder: Path) -> None:
    """Move a finished folder to its name; an older one of that name is removed once the new one is in place."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    draft.rename(folder)
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _write_parts(folder: Path, parts: Mapping[str, Mapping[str, Tensor]], dtype: torch.dtype) -> dict[str, FilePart]:
    written: dict[str, FilePart] = {}
    for name, tensors in parts.items():
        path = folder / f"{name}.safetensors"
        stored = {key: _stored(key, tensor, dtype) for key, tensor in tensors.items()}
        safetensors.torch.save_file(stored, path, metadata={"format": "pt"})
        written[name] = FilePart(file=path.name, sha256=sha256_of(path))
    return written


def _stored(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    tensor = tensor.detach().cpu()
    if not tensor.is_floating_point():
        return tensor.contiguous().clone()
    stored = tensor.to(dtype)
    if not bool(stored.isfinite().all()):
        raise DataError("not_finite", f"tensor {name} has values that are NaN or beyond {dtype}: nothing is written")
    return stored.contiguous().clone()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def to_json_config(config: Any) -> str:
    """A pydantic config as the text of ``config.json``."""
    return str(config.model_dump_json(indent=2)) + "\n"
