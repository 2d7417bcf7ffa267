"""Recipes: one YAML file per training run, with ``key=value`` overrides."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import yaml
from pydantic import BaseModel

from models.errors import DataError
from models.lookup import resolve
from training.options import parse_options

TASKS = {
    "captioner": "training.captioner_task:CaptionerTask",
    "scorer": "training.scorer.task:ScorerTask",
}


RECIPES = Path(str(files("training") / "recipes"))
"""Those that come with limner."""

_NO_YAML = (yaml.YAMLError, ValueError, RecursionError)  # ValueError: bytes, dates and numbers that are none
_VARIANTS = ("objective", "decoding", "decode")
"""Settings with a name and options: the options of one variant mean nothing to another."""


class Task(Protocol):
    """A kind of training run; the recipe's ``task`` names it."""

    Config: type[BaseModel]

    def __init__(self, config: Any) -> None: ...

    def run(self, out: Path) -> Path:
        """Train, continuing an interrupted run in ``out``, and return the finished checkpoint folder."""


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The recipe as plain data. ``overrides`` are dotted ``key=value`` words, their values YAML.

    A name without a folder that does not exist here, such as ``concise.yaml``, means one that limner ships. A recipe
    that ``extends`` another, named likewise or beside it, has that one's settings where it has none of its own.

    Raises:
        DataError: ``bad_recipe``, the file cannot be read or is no mapping, or an override does not fit it.
    """
    recipe = _read_extended(path, ())
    for word in overrides:
        _override(recipe, word)
    return recipe


def recipes_before(recipe: dict[str, Any]) -> list[Path]:
    """The recipes that must have been trained before this one, taken out of it (``after``).

    Raises:
        DataError: ``bad_recipe``, they are no list of names.
    """
    names = recipe.pop("after", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError("bad_recipe", f"after must be a list of recipes, not {names!r}")
    return [Path(name) for name in names]


def _read_extended(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path.name == str(path) and not path.exists():
        shipped = RECIPES / path.name
        path = shipped if shipped.exists() else path
    if path.resolve() in seen:
        raise DataError("bad_recipe", f"{path} extends itself")
    recipe = _read_file(path)
    parent = recipe.pop("extends", None)
    if parent is None:
        return recipe
    if not isinstance(parent, str):
        raise DataError("bad_recipe", f"{path}: extends must name one recipe, not {parent!r}")
    beside = path.parent / parent
    inherited = _read_extended(beside if beside.exists() else Path(parent), (*seen, path.resolve()))
    return _merged(inherited, recipe)


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``over`` on top of ``under``, group by group; a variant replaces another as a whole."""
    merged = dict(under)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and key not in _VARIANTS:
            value = _merged(old, value)
        merged[key] = value
    return merged


def _read_file(path: Path) -> dict[str, Any]:
    try:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(sorted(each.name for each in RECIPES.glob("*.yaml")))
        hint = f"; those that come with limner are in {RECIPES}: {known}" if known and not path.exists() else ""
        raise DataError("bad_recipe", f"{path} cannot be read: {error.strerror}{hint}") from error
    except _NO_YAML as error:
        raise DataError("bad_recipe", f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(recipe, dict):
        raise DataError("bad_recipe", f"{path} holds no mapping of settings")
    return recipe


def build_task(recipe: Mapping[str, Any]) -> Task:
    """The task of a recipe, its settings checked.

    Raises:
        DataError: ``bad_recipe`` without a task.
        UnknownNameError: no such task.
        RequestError: ``invalid_request``, a setting does not fit.
    """
    settings = dict(recipe)
    name = settings.pop("task", None)
    if not isinstance(name, str):
        raise DataError("bad_recipe", f"the recipe needs a task, one of: {', '.join(TASKS)}")
    kind = resolve("task", TASKS, name)
    task: Task = kind(parse_options(f"recipe of task {name!r}", kind.Config, settings))
    return task


def _override(recipe: dict[str, Any], word: str) -> None:
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise DataError("bad_recipe", f"{word!r} is not key=value")
    *parents, last = key.split(".")
    at = recipe
    for parent in parents:
        inner = at.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise DataError("bad_recipe", f"{word!r}: {parent} is a value, not a group of settings")
        at = inner
    try:
        at[last] = yaml.safe_load(text)
    except _NO_YAML as error:
        raise DataError("bad_recipe", f"{word!r}: the value is no YAML: {' '.join(str(error).split())}") from error
