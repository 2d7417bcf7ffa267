"""Versions of the models in a models folder: installed beside each other, one of them current. Loads no torch.

``DIR/ID`` is a link to ``.versions/ID/NUMBER``, set in one move: whoever loads the model gets one version whole.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from models.catalog import find_captioner
from models.errors import CheckpointError, RequestError, UnknownNameError
from models.file_hashes import verify_files

_STORE = ".versions"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Version:
    """One installed version."""

    model: str
    number: int
    path: Path
    current: bool


def install(folder: Path, models_dir: Path, model: str | None = None) -> Version:
    """Copy a checkpoint folder into ``models_dir`` as the current version of ``model``, by default the folder's name.

    A plain folder of that id becomes version 1 first. What fails leaves the current version as it is.

    Raises:
        RequestError: ``invalid_request`` for an id that cannot be one.
        UnknownNameError: ``unknown_model``; the folder holds a scorer, or is none.
        CheckpointError: a file is missing or damaged, or cannot be written.
    """
    model = folder.resolve().name if model is None else model
    if not _ID.fullmatch(model):
        detail = f"{model[:200]!r} is no id: letters, digits and ._- only, at most 100; name one with --id"
        raise RequestError("invalid_request", detail)
    if not folder.is_dir():
        raise UnknownNameError("unknown_model", f"{folder} is no folder")
    verify_files(folder, find_captioner(str(folder.resolve())).card)
    try:
        return _install(folder, models_dir, model)
    except OSError as error:
        raise CheckpointError("missing_file", f"{models_dir} cannot be written: {error.strerror}") from error


def versions(models_dir: Path, model: str) -> list[Version]:
    """The installed versions, oldest first.

    Raises:
        UnknownNameError: ``unknown_model``; none was installed.
    """
    store = models_dir / _STORE / model
    numbers = sorted(int(path.name) for path in store.glob("*") if path.name.isdigit()) if _ID.fullmatch(model) else []
    if not numbers:
        raise UnknownNameError("unknown_model", f"no version of {model[:200]!r} was installed in {models_dir}")
    current = (models_dir / model).resolve()
    paths = [(number, _path(models_dir, model, number)) for number in numbers]
    return [Version(model, number, path, path.resolve() == current) for number, path in paths]


def rollback(models_dir: Path, model: str, to: int | None = None) -> Version:
    """Make an earlier version the current one: number ``to``, by default the one before.

    Raises:
        UnknownNameError: ``unknown_model``; none was installed.
        RequestError: ``invalid_request``; there is no such version.
        CheckpointError: its files are missing or damaged; the current one stays.
    """
    found = versions(models_dir, model)
    current = next((version.number for version in found if version.current), None)
    before = [version.number for version in found if current is not None and version.number < current]
    number = to if to is not None else max(before, default=None)
    numbers = ", ".join(str(version.number) for version in found)
    if number is None:
        detail = f"{model!r} has no version before the current one; there are: {numbers}; name one with --to"
        raise RequestError("invalid_request", detail)
    if number not in {version.number for version in found}:
        raise RequestError("invalid_request", f"{model!r} has no version {number}; there are: {numbers}")
    path = _path(models_dir, model, number)
    verify_files(path, find_captioner(str(path)).card)
    _point(models_dir, model, path)
    return Version(model, number, path, True)


def _install(folder: Path, models_dir: Path, model: str) -> Version:
    store = models_dir / _STORE / model
    store.mkdir(parents=True, exist_ok=True)
    link = models_dir / model
    taken = [int(path.name) for path in store.glob("*") if path.name.isdigit()]
    number = max(taken, default=0) + 1
    draft = store / f".draft-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        shutil.copytree(folder, draft)
        os.utime(draft)  # when it was installed, which `versions` shows; the copy has the checkpoint's own time
        if link.is_dir() and not link.is_symlink():
            link.rename(_path(models_dir, model, number))
            number += 1
        path = _path(models_dir, model, number)
        draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _point(models_dir, model, path)
    return Version(model, number, path, True)


def _path(models_dir: Path, model: str, number: int) -> Path:
    return models_dir / _STORE / model / f"{number:04d}"


def _point(models_dir: Path, model: str, path: Path) -> None:
    """Make ``DIR/ID`` a link to ``path``, in one move."""
    draft = models_dir / f".{model}-{os.getpid()}"
    draft.unlink(missing_ok=True)
    draft.symlink_to(path.relative_to(models_dir))
    draft.replace(models_dir / model)
