"""Training curves, as in SMILE's Figure 3.

``python -m training.curves RUN_FOLDER RUN_FOLDER --out curves.png``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from models.errors import DataError, RequestError
from training.data.files import load_json
from training.module_command import run
from training.plots import Curves, plot_curves

NUMBERS = ("mean_words", "lexical_diversity", "r_at_1", "clip_score")
"""What SMILE's figure shows."""

_STATE = "trainer_state.json"
_PREFIX = "eval_"


def draw(
    runs: Annotated[list[Path], typer.Argument(help="Folders of training runs.")],
    out: Annotated[Path, typer.Option(help="PNG file; the numbers go into a JSON file beside it.")] = Path(
        "curves.png"
    ),
    metric: Annotated[
        list[str] | None, typer.Option(help="Number to show, repeatable. Default: those of SMILE's figure.")
    ] = None,
) -> None:
    """Plot what the validations of training runs measured, step by step."""
    draw_curves(runs, out, metric)
    typer.echo(f"wrote {out}")


def draw_curves(runs: Sequence[Path], out: Path, names: Sequence[str] | None = None) -> None:
    """Plots the numbers ``names`` (None: those of ``NUMBERS`` that were measured) of the runs into ``out``.

    Raises:
        DataError: ``no_data`` where a folder holds no run, or no run measured a number.
        RequestError: a place that cannot be written.
        MissingDependencyError: matplotlib is absent.
    """
    curves: Curves = {name: read_curves(run) for run, name in zip(runs, _names(runs), strict=True)}
    measured = dict.fromkeys(name for numbers in curves.values() for name in numbers)
    wanted = list(names) if names else [name for name in NUMBERS if name in measured]
    absent = [name for name in wanted or NUMBERS if name not in measured]
    if absent or not wanted:
        detail = f"no validation of these runs measured {', '.join(absent)}; there are: {', '.join(measured)}"
        raise DataError("no_data", detail)
    if not out.absolute().parent.is_dir():
        raise RequestError("invalid_request", f"{out} cannot be written: there is no folder {out.absolute().parent}")
    plot_curves(curves, wanted, out)


def read_curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every number that the validations of a run measured, by name.

    Raises:
        DataError: ``no_data`` where the folder holds no checkpoint of a run.
    """
    states = sorted(run.glob(f"checkpoint-*/{_STATE}"), key=lambda path: int(path.parent.name.rpartition("-")[2]))
    if not states:
        raise DataError("no_data", f"{run} holds no checkpoint-*/{_STATE}: it is no folder of a training run")
    curves: dict[str, list[tuple[int, float]]] = {}
    for entry in load_json(states[-1]).get("log_history", []):
        for key, value in entry.items():
            if key.startswith(_PREFIX):
                curves.setdefault(key.removeprefix(_PREFIX), []).append((entry["step"], value))
    return curves


def _names(runs: Sequence[Path]) -> list[str]:
    """The folders' names; their paths where two are called the same."""
    counts = Counter(run.name for run in runs)
    return [run.name if counts[run.name] == 1 else str(run) for run in runs]


if __name__ == "__main__":
    run(draw)
