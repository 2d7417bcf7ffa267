"""``limner data check``. Loads no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from models.cli_values import key_values
from models.errors import RequestError
from training.data import FORMATS
from training.data_check import check_data


def check(
    settings: Annotated[
        list[str] | None, typer.Argument(help="Options of the format, key=value; path.train=FILE names one split's.")
    ] = None,
    data_format: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "karpathy",
    data: Annotated[Path | None, typer.Option(help="The same as path=...")] = None,
    images_root: Annotated[Path | None, typer.Option(help="The same as images_root=...")] = None,
    images: Annotated[bool, typer.Option("--images", help="Decode every picture, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print what a run would use of a data set, and every defect. Exit code 1 where something would be left out."""
    from rich.console import Console
    from rich.progress import Progress

    given = {"path": data, "images_root": images_root}
    options = nested(key_values(settings or ()), {key: value for key, value in given.items() if value is not None})
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (images and console.is_terminal)) as bar:
        task = bar.add_task("pictures", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        found = check_data(data_format, options, images=images, progress=progress)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))  # ASCII: file names may hold what no encoding can print
    else:
        for line in found.to_lines():
            typer.echo(line)
    if not found.clean:
        raise typer.Exit(1)


def nested(words: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ``given`` and ``words``, in which ``path.train`` is the field ``train`` of ``path``.

    Raises:
        RequestError: ``invalid_request`` for an option given twice.
    """
    options = dict(given)
    for word, value in words.items():
        key, dot, field = word.partition(".")
        inner = options.setdefault(key, {}) if dot else options
        if not isinstance(inner, dict) or (name := field if dot else key) in inner:
            raise RequestError("invalid_request", f"option {key!r} is given twice")
        inner[name] = value
    return options
