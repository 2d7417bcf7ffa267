"""Whether the words of a command are ones that ``limner`` takes."""

from collections.abc import Sequence
from typing import Any

import typer

from serving import cli


def serve_options(words: Sequence[str]) -> dict[str, Any]:
    """What ``limner serve`` makes of the words after it. Raises as the command line does for unknown options."""
    app = typer.Typer()
    app.command()(cli.serve)
    return typer.main.get_command(app).make_context("serve", list(words)).params
