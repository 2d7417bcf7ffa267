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

from models.card import CARD_FILE, Card, DeltaPart, FilePart, SharedPart, WeightsCard, dump_card
from models.catalog import find_part
from models.errors import CheckpointError, DataError
from models.file_hashes import file_inside, sha256_of, verify, verify_files
from models.mixing.quantised_delta import apply_delta
from models.moves import sync


def read_parts(folder: Path, card: WeightsCard, models_dir: Path | None = None) -> dict[str, Tensor]:
    """All tensors of a checkpoint, its shared parts fetched from the models that own them.

    Raises:
        CheckpointError: a file is missing, damaged or no safetensors file, or two parts hold the same tensor.
            A shared part's model must lie beside the folder, below ``models_dir`` or among the bundled models.
    """
    tensors: dict[str, Tensor] = {}
    for name, found in read_each_part(folder, card, models_dir).items():
        if twice := sorted(found.keys() & tensors.keys()):
            raise CheckpointError("wrong_keys", f"{folder}: part {name!r} repeats {twice[0]} of another part")
        tensors |= found
    return tensors


def read_each_part(folder: Path, card: WeightsCard, models_dir: Path | None = None) -> dict[str, dict[str, Tensor]]:
    """The tensors of every part, as stored; those of quantised differences restored. Raises as ``read_parts`` does."""
    verify_files(folder, card)
    return {name: _read_part(folder, part, models_dir) for name, part in card.parts.items()}


def _read_part(folder: Path, part: FilePart | SharedPart, models_dir: Path | None) -> dict[str, Tensor]:
    if isinstance(part, SharedPart):
        owner, shared = find_part(part, folder, models_dir)
        verify(file_inside(owner, shared.file), part.sha256 or shared.sha256)
        return _read_part(owner, shared, models_dir)
    path = file_inside(folder, part.file)
    try:
        tensors = safetensors.torch.load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError("unsafe_file", f"{path} is not a readable safetensors file: {error}") from error
    if not isinstance(part, DeltaPart):
        return tensors
    base = find_part(part.base, folder, models_dir)[1]
    if isinstance(base, DeltaPart):
        raise CheckpointError("bad_card", f"{path} is a difference to model {part.base.model!r}, itself a difference")
    return apply_delta(_read_part(folder, part.base, models_dir), tensors, path)


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], source: Path | str) -> None:
    """Copy ``tensors`` into the module, converted to its dtype. Raises as ``check_fit`` and ``check_finite`` do."""
    check_fit(module, tensors, source)
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:  # a type that cannot be converted
        raise CheckpointError("wrong_keys", f"{source} does not fit its config: {error}") from error
    check_finite(module.state_dict(), source)  # as converted: not every type that is stored can be asked


def check_finite(tensors: Mapping[str, Tensor], source: Path | str) -> None:
    """Refuse weights that no caption comes of.

    Raises:
        CheckpointError: ``wrong_keys``, naming the first tensor with a value that is NaN or infinite.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError("wrong_keys", f"{source}: {name} has values that are NaN or infinite")


def check_fit(module: nn.Module, tensors: Mapping[str, Tensor], source: Path | str) -> None:
    """Refuse tensors that are not those of the module, which may be on the device ``meta``.

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
        if tensor.is_floating_point() != wanted[name].is_floating_point() or tensor.is_complex():
            detail = f"{source}: {name} holds {tensor.dtype}, the config asks for {wanted[name].dtype}"
            raise CheckpointError("wrong_keys", detail)


def write_checkpoint(
    folder: Path,
    make_card: Callable[[dict[str, FilePart], dict[str, str]], Card],
    parts: Mapping[str, Mapping[str, Tensor]],
    write_files: Callable[[Path], None],
    dtype: torch.dtype | None = torch.float16,
) -> Card:
    """Write a checkpoint folder in one move and return its card; an existing folder is replaced.

    Args:
        make_card: the card, given the written parts and the sha256 of every further file.
        parts: tensors by part name. A part is written to ``NAME.safetensors``.
        write_files: writes config and tokenizer files into the folder that it is given.
        dtype: what floating tensors are rounded to; None keeps each as it is.

    Raises:
        CheckpointError: ``bad_card``; the folder holds something else than a checkpoint, which is not thrown away.
        DataError: ``not_finite``; a tensor holds NaN, or what ``dtype`` cannot express.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError("bad_card", f"{folder} is a file: name another folder")
    if folder.exists() and not (folder / CARD_FILE).is_file() and any(folder.iterdir()):
        raise CheckpointError(
            "bad_card", f"{folder} exists and is no checkpoint: it is not replaced; name another folder"
        )
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise CheckpointError("missing_file", f"{folder} cannot be written: {error.strerror}") from error
    try:
        write_files(draft)
        files = {path.name: sha256_of(path) for path in sorted(draft.iterdir())}
        card = make_card(_write_parts(draft, parts, dtype), files)
        (draft / CARD_FILE).write_text(dump_card(card), encoding="utf-8")
        for path in draft.iterdir():
            path.chmod(0o644)  # safetensors writes for the owner alone, and others serve what one user trained
            sync(path)
        sync(draft)
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
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _write_parts(
    folder: Path, parts: Mapping[str, Mapping[str, Tensor]], dtype: torch.dtype | None
) -> dict[str, FilePart]:
    written: dict[str, FilePart] = {}
    for name, tensors in parts.items():
        path = folder / f"{name}.safetensors"
        stored = {key: _stored(key, tensor, dtype) for key, tensor in tensors.items()}
        safetensors.torch.save_file(stored, path, metadata={"format": "pt"})
        written[name] = FilePart(file=path.name, sha256=sha256_of(path))
    return written


def _stored(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    tensor = tensor.detach().cpu()
    if not tensor.is_floating_point():
        return tensor.contiguous().clone()
    stored = tensor if dtype is None else tensor.to(dtype)
    if not bool(stored.isfinite().all()):
        limit = stored.dtype
        raise DataError("not_finite", f"tensor {name} has values that are NaN or beyond {limit}: nothing is written")
    return stored.contiguous().clone()


def to_json_config(config: Any) -> str:
    """A pydantic config as the text of ``config.json``."""
    return str(config.model_dump_json(indent=2)) + "\n"
