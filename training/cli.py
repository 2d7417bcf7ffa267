"""The commands of ``limner`` that training owns; ``models.cli`` finds them here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from models.errors import RequestError
from training.cli_evaluate import evaluate

__all__ = ["evaluate", "train"]


_OF_DATA = ("data.name=", "data.terms=", "data.format=", "data.options")
"""Settings that also hold for the recipes that a recipe needs."""


def train(
    recipe: Annotated[Path, typer.Argument(help="YAML file, or the name of one that limner ships, e.g. concise.yaml.")],
    settings: Annotated[list[str] | None, typer.Argument(help="Overrides, dotted key=value.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/ and the recipe's name.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that share the run, by Ray Train; each takes images_per_step.")
    ] = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="One GPU for each of the workers.")] = False,
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster with the workers, or auto. Default: this machine alone.")
    ] = None,
) -> None:
    """Train what a recipe describes, after the recipes that it needs. An interrupted run goes on where it was."""
    from training.logs import log_to_stderr
    from training.recipe import build_task, read_recipe

    if workers is None and (gpus or address):
        raise RequestError("invalid_request", "--gpus and --address are about --workers: say how many")
    log_to_stderr()
    data = [word for word in settings or () if word.startswith(_OF_DATA)]  # the data lie elsewhere for all of them
    runs = _runs(read_recipe(recipe, settings or ()), out or Path("runs") / recipe.stem, data)
    build_task(runs[-1][0])  # checked before hours are spent on what it needs
    if workers is None:
        finished = [build_task(plan).run(folder) for plan, folder in runs][-1]
    else:
        from training.launch import launch

        finished = launch(runs, workers=workers, gpus=gpus, address=address)
    typer.echo(f"wrote {finished}")


def _runs(plan: dict[str, Any], out: Path, settings: Sequence[str]) -> list[tuple[dict[str, Any], Path]]:
    """The recipes that this one needs, with ``settings``, and itself, in order, each with the folder of its run."""
    from training.recipe import read_recipe, recipes_before

    earlier = [
        _runs(read_recipe(needed, settings), Path("runs") / needed.stem, settings) for needed in recipes_before(plan)
    ]
    return [*chain.from_iterable(earlier), (plan, out)]
