"""The commands of ``limner`` that training owns; ``models.cli`` finds them here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from training.cli_evaluate import evaluate

__all__ = ["evaluate", "train"]


def train(
    recipe: Annotated[Path, typer.Argument(help="YAML file, or the name of one that limner ships, e.g. concise.yaml.")],
    settings: Annotated[list[str] | None, typer.Argument(help="Overrides, dotted key=value.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/ and the recipe's name.")] = None,
) -> None:
    """Train what a recipe describes, after the recipes that it needs. An interrupted run goes on where it was."""
    import logging

    from training.recipe import build_task, read_recipe, recipes_before

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    plan = read_recipe(recipe, settings or ())
    earlier = recipes_before(plan)
    task = build_task(plan)  # checked before hours are spent on what it needs
    for needed in earlier:
        train(needed)
    finished = task.run(out or Path("runs") / recipe.stem)
    typer.echo(f"wrote {finished}")
