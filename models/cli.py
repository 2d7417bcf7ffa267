"""The ``limner`` command: a table of commands, each loaded when it is called for."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from models import __version__
from models.errors import LimnerError
from models.lookup import resolve

COMMANDS: dict[str, str] = {
    "serve": "serving.cli:serve",
    "caption": "serving.cli_caption:caption",
    "compare": "serving.cli_compare:compare",
    "train": "training.cli:train",
    "evaluate": "training.cli:evaluate",
    "data check": "training.cli_data:check",
    "models list": "models.cli_models:list_",
    "models show": "models.cli_models:show",
    "models import": "models.cli_import:import_",
    "models mix": "models.cli_mix:mix",
    "models spectrum": "models.cli_spectrum:spectrum",
    "models install": "serving.cli_versions:install",
    "models versions": "serving.cli_versions:versions",
    "models rollback": "serving.cli_versions:rollback",
    "models calibrate": "training.cli_calibrate:calibrate",
}
"""Command -> "module:function"; the function's annotations are its arguments, its docstring is its help."""

GROUPS: dict[str, str] = {"data": "Look into data sets.", "models": "List, inspect, mix, calibrate and install models."}
"""First word of two-word commands -> help."""

ROOT = "limner"


class TableGroup(TyperGroup):
    """The commands of ``COMMANDS`` that begin with the group's name, or for the root all others and the groups."""

    def list_commands(self, ctx: Any) -> list[str]:
        if self.name != ROOT:
            return [key.split()[1] for key in COMMANDS if key.split()[0] == self.name]
        return [key for key in COMMANDS if " " not in key] + list(GROUPS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        key = cmd_name if self.name == ROOT else f"{self.name} {cmd_name}"
        if key in GROUPS:
            return typer.main.get_command(_group(key, GROUPS[key]))
        if key not in COMMANDS:
            return None
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cmd_name)(resolve("command", COMMANDS, key))
        return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """The exit code of one call: 0 done, 1 some items or the disk failed, 2 unusable arguments, 130 interrupted."""
    try:
        command = typer.main.get_command(_root())
        code = command.main(args=list(arguments), prog_name=ROOT, standalone_mode=False)
    except LimnerError as error:
        return _refuse(str(error))
    except OSError as error:
        _refuse(f"{error.filename or 'the system'}: {error.strerror or error}")
        return 1
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else ROOT
        return _refuse(f"usage: {error.format_message()} (see {path} --help)")
    return code if isinstance(code, int) else 0


def main() -> None:
    """Entry point of the installed script."""
    _fill_closed_streams()
    sys.exit(run(sys.argv[1:]))


def _fill_closed_streams() -> None:
    """Give closed standard streams to nobody: their numbers would go to the next files that are opened, and what
    libraries and other processes print would stand in those. What is told on a closed stderr is not wanted."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free, which is this
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def _refuse(message: str) -> int:
    typer.echo("error: " + " ".join(message.split()), err=True)
    return 2


def _root() -> typer.Typer:
    app = typer.Typer(name=ROOT, cls=TableGroup, add_completion=False, rich_markup_mode=None)

    @app.callback(invoke_without_command=True)
    def limner(
        context: typer.Context,
        version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    ) -> None:
        """Caption pictures, serve captions over HTTP, train captioners and measure them."""
        if version:
            typer.echo(f"{ROOT} {__version__}")
        elif context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app


def _group(name: str, help_text: str) -> typer.Typer:
    app = typer.Typer(name=name, help=help_text, cls=TableGroup, add_completion=False, rich_markup_mode=None)

    @app.callback(invoke_without_command=True)
    def group(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app


if __name__ == "__main__":
    main()
