"""What ``python -m training.NAME`` does with a function: its annotations are the arguments, errors are one line."""

import sys
from collections.abc import Callable

import typer

from models.errors import LimnerError


def run(function: Callable[..., None]) -> None:
    """Run the function by the words of the command line; exit code 2 for unusable ones."""
    try:
        typer.run(function)
    except LimnerError as error:
        typer.echo("error: " + " ".join(str(error).split()), err=True)
        sys.exit(2)
