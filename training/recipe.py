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


class Task(Protocol):
    """A kind of training run; the recipe's ``task`` names it."""

    Config: type[BaseModel]

    def __init__(self, config: Any) -> None: ...

    def run(self, out: Path) -> Path:
        """Train, continuing an interrupted run in ``out``, and return the finished checkpoint folder."""


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The recipe as plain data. ``overrides`` are dotted ``key=value`` words, their values YAML.

    A name without a folder that does not exist here, such as ``concise.yaml``, means one that limner ships.

    Raises:
        DataError: ``bad_recipe``, the file cannot be read or is no mapping, or an override does not fit it.
    """
    if path.name == str(path) and not path.exists():
        shipped = Path(str(files("training") / "recipes" / path.name))
        path = shipped if shipped.exists() else path
    try:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError("bad_recipe", f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError("bad_recipe", f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(recipe, dict):
        raise DataError("bad_recipe", f"{path} holds no mapping of settings")
    for word in overrides:
        _override(recipe, word)
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
    except yaml.YAMLError as error:
        raise DataError("bad_recipe", f"{word!r}: the value is no YAML: {' '.join(str(error).split())}") from error
