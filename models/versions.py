"""Versions of the models in a models folder: installed beside each other, one of them current. Loads no torch.

``DIR/ID`` is a link to ``.versions/ID/NUMBER``, set in one move: whoever loads the model gets one version whole. Who
changes something holds a lock on ``.versions/ID``: drafts that are there before are of somebody who was killed.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import abspath, realpath
from pathlib import Path

from models.catalog import FAKE_CARD, STORE, find_captioner
from models.errors import CheckpointError, LimnerError, RequestError, UnknownNameError
from models.file_hashes import verify_files
from models.moves import exchange, folder_lock, shared_and_synced, sync

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NUMBER = re.compile(r"[0-9]{4,9}")
_DRAFT, _LINK = ".draft", ".link"


@dataclass(frozen=True)
class Version:
    """One installed version."""

    model: str
    number: int
    path: Path
    current: bool


TakeUp = Callable[[Version], None]
"""Has a server load the current version; raises a LimnerError where that is known to have failed."""


def install(folder: Path, models_dir: Path, model: str | None = None, *, take_up: TakeUp | None = None) -> Version:
    """Copy a checkpoint folder into ``models_dir`` as the current version of ``model``, by default the folder's name.

    A plain folder of that id becomes the version before. What fails leaves the current version as it is, also where
    ``take_up`` raises, which is called when the new version is current: the new one is then no version either.

    Raises:
        RequestError: ``invalid_request`` for an id that cannot be one, or a folder that holds ``models_dir``.
        UnknownNameError: ``unknown_model``; the folder holds a scorer, or is none.
        CheckpointError: a file is missing or damaged, or cannot be read or written.
    """
    model = Path(abspath(folder)).name if model is None else model  # of a link its own name, not a version's number
    if not _ID.fullmatch(model) or model == FAKE_CARD.id:
        detail = f"{model[:200]!r} is no id: letters, digits and ._- only, at most 100; name one with --id"
        raise RequestError("invalid_request", detail)
    if not folder.is_dir():
        raise UnknownNameError("unknown_model", f"{folder} is no folder")
    if models_dir.resolve().is_relative_to(folder.resolve()):
        raise RequestError("invalid_request", f"{folder} holds {models_dir}, into which it is to be copied")
    verify_files(folder, find_captioner(str(folder.resolve())).card)
    with _changing(models_dir, model) as store:
        _refuse_a_file(models_dir / model)
        before = _before(models_dir, model, store)
        version = _install(folder, models_dir, model, store)
        try:
            _offer(version, take_up, models_dir, before, store)
        except LimnerError:
            version.path.rename(refused := store / f"{_DRAFT}-refused")
            shutil.rmtree(refused, ignore_errors=True)
            raise
        return version


def versions(models_dir: Path, model: str) -> list[Version]:
    """The installed versions, oldest first.

    Raises:
        UnknownNameError: ``unknown_model``; none was installed.
    """
    store = models_dir / STORE / model
    paths = [path for path in store.glob("*") if _number(path) and path.is_dir()] if _ID.fullmatch(model) else []
    if not paths:
        raise UnknownNameError("unknown_model", f"no version of {model[:200]!r} was installed in {models_dir}")
    current = realpath(models_dir / model)
    return [Version(model, _number(path), path, realpath(path) == current) for path in sorted(paths, key=_number)]


def rollback(models_dir: Path, model: str, to: int | None = None, *, take_up: TakeUp | None = None) -> Version:
    """Make an earlier version the current one: number ``to``, by default the one before. ``take_up`` as of ``install``.

    Raises:
        UnknownNameError: ``unknown_model``; none was installed.
        RequestError: ``invalid_request``; there is no such version.
        CheckpointError: its files are missing or damaged, or nothing can be written; the current one stays.
    """
    versions(models_dir, model)  # else a store would be made for a model that is not there
    with _changing(models_dir, model) as store:
        found = versions(models_dir, model)
        current = next((version.number for version in found if version.current), None)
        before = [version.number for version in found if current is not None and version.number < current]
        number = to if to is not None else max(before, default=None)
        numbers = ", ".join(str(version.number) for version in found)
        if number is None:
            detail = f"{model!r} has no version before the current one; there are: {numbers}; name one with --to"
            raise RequestError("invalid_request", detail)
        path = next((version.path for version in found if version.number == number), None)
        if path is None:
            raise RequestError("invalid_request", f"{model!r} has no version {number}; there are: {numbers}")
        verify_files(path, find_captioner(str(path)).card)
        was = _before(models_dir, model, store)
        _point(models_dir, model, path, _next(store))
        version = Version(model, number, path, True)
        _offer(version, take_up, models_dir, was, store)
        return version


@contextmanager
def _changing(models_dir: Path, model: str) -> Iterator[Path]:
    """The model's store, there and nobody else's while the block runs, without what somebody left who was killed."""
    store = models_dir / STORE / model
    try:
        for folder in (store.parent, store):
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)  # of two at once, one comes later
                shutil.copymode(models_dir, folder)  # whatever the umask: others serve what one user installs
        with folder_lock(store):
            if _is_plain(store / _LINK):  # it was exchanged for a link, and the number before the last left for it
                before = _path(store, _next(store) - 2)
                (store / _LINK).rename(_path(store, _next(store)) if before.exists() else before)
            (store / _LINK).unlink(missing_ok=True)
            for draft in store.glob(f"{_DRAFT}*"):
                shutil.rmtree(draft)
            yield store
    except OSError as error:
        detail = f"{model!r} in {models_dir} cannot be changed: {_reason(error)[:300]}"
        raise CheckpointError("missing_file", detail) from error


def _install(folder: Path, models_dir: Path, model: str, store: Path) -> Version:
    place, draft = models_dir / model, store / _DRAFT
    try:
        shutil.copytree(folder, draft)
        os.utime(draft)  # when it was installed, which `versions` shows; the copy has the checkpoint's own time
        verify_files(draft, find_captioner(str(draft)).card)  # once more: the source may have changed meanwhile
        shared_and_synced(draft, models_dir)
        number = _next(store) + _is_plain(place)  # leave one for the plain folder, which becomes the version before
        draft.rename(_path(store, number))
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _point(models_dir, model, _path(store, number), number - 1)
    return Version(model, number, _path(store, number), True)


def _point(models_dir: Path, model: str, path: Path, number_of_plain: int) -> None:
    """Make ``DIR/ID`` a link to ``path``, in one move; a plain folder there becomes a version of that number."""
    place, store = models_dir / model, path.parent
    link, kept = store / _LINK, _path(store, number_of_plain)
    _refuse_a_file(place)
    link.symlink_to(path.relative_to(models_dir))
    if _is_plain(place):
        if exchange(link, place):
            link.rename(kept)
        else:
            place.rename(kept)
            link.replace(place)
    else:
        link.replace(place)
    sync(store)
    sync(models_dir)


def _before(models_dir: Path, model: str, store: Path) -> Path | None:
    """Where a link must lead that makes current again what is so now: a plain folder will be the next version by then.
    None: nothing is."""
    place = models_dir / model
    if _is_plain(place):
        return _path(store, _next(store)).relative_to(models_dir)
    return place.readlink() if place.is_symlink() else None


def _offer(version: Version, take_up: TakeUp | None, models_dir: Path, before: Path | None, store: Path) -> None:
    """Have the current version taken up; where that fails, the id leads to ``before`` again."""
    try:
        if take_up is not None:
            take_up(version)
    except LimnerError:
        place, link = models_dir / version.model, store / _LINK
        if before is None:
            place.unlink()
        else:
            link.symlink_to(before)
            link.replace(place)
        sync(models_dir)
        raise


def _refuse_a_file(place: Path) -> None:
    if place.is_file():
        raise RequestError("invalid_request", f"{place} is a file: it is not replaced")


def _is_plain(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def _number(path: Path) -> int:
    """Of a version's folder; 0 for another name."""
    number = int(path.name) if _NUMBER.fullmatch(path.name) else 0
    return number if path.name == f"{number:04d}" else 0


def _next(store: Path) -> int:
    return max(map(_number, store.iterdir()), default=0) + 1


def _path(store: Path, number: int) -> Path:
    return store / f"{number:04d}"


def _reason(error: OSError) -> str:
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):  # of many files: the first
        source, _, why = error.args[0][0]
        return f"{source}: {why}"
    return error.strerror or str(error)
