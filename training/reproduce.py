"""Trains and measures whatever of a set of experiments is missing: ``python -m training.reproduce docs/results``.

Trained checkpoints go to ``runs/``; each table's numbers are written beside the plan as ``TABLE/comparison.json``,
which ``python -m training.tables`` prints. What is there is kept: to make a table again, delete its file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from models.catalog import find_captioner
from models.device import set_threads
from models.errors import DataError
from models.mixing.mix import Mix
from models.mixing.writing import write_differences, write_mix_card
from training.cli import train
from training.compare import compare
from training.data.selection import Selection
from training.evaluate import Measured, evaluate_each
from training.evaluation.settings import EvaluationSettings, Subject
from training.experiments import Experiments, Row, Table, read_experiments
from training.module_command import run as run_command
from training.plots import has_trade_off, plot_dial, plot_plane, plot_trade_off
from training.report import to_json, write_text

logger = logging.getLogger(__name__)

RESULT_FILE = "comparison.json"


class Reproduction:
    """The experiments of ``folder`` and the place ``runs`` where what they train lies."""

    def __init__(self, folder: Path, runs: Path) -> None:
        """Raises DataError as ``read_experiments`` does."""
        self.plan: Experiments = read_experiments(folder)
        self._folder, self._runs = folder, runs
        self._mixes = runs / "mixes"
        self._measured: dict[str, Measured] = {}
        """Of the tables made so far: many show the same models under the same conditions."""

    def make(self, tables: Iterable[str]) -> None:
        """Make these tables, with what they need. Raises LimnerError as training and evaluation do."""
        for name in tables:
            if not (self._folder / name / RESULT_FILE).exists():
                self._make_table(name, self.plan.tables[name])

    def checkpoint(self, run: str) -> str:
        """The folder of a run's checkpoint, which is trained first where it is missing."""
        folder = self._runs / run / run
        if not folder.exists():
            logger.info("run %s", run)
            planned = self.plan.runs[run]
            train(Path(planned.recipe), [*planned.settings, f"id={run}"], self._runs / run)
        return str(folder)

    def direction(self, name: str) -> Path:
        """The folder of a direction: the mean of its runs as int4 differences to the base."""
        folder = self._mixes / name
        if not folder.exists():
            models = {run: find_captioner(self.checkpoint(run)) for run in self.plan.directions[name]}
            equally = dict.fromkeys(models, 1 / len(models))
            mix = Mix(id=name, base=find_captioner(self.plan.base), directions=models, coefficients=equally)
            _, error = write_differences(folder, mix, bits=4)
            logger.info("direction %s: int4 loses %.2f %% of the difference", name, 100 * error)
        return folder

    def mix(self, coefficients: Mapping[str, float]) -> Path:
        """The folder with the card of a mix of directions."""
        name = "+".join(f"{value:g}-{direction}" for direction, value in coefficients.items())
        folder = self._mixes / name
        directions = {direction: find_captioner(str(self.direction(direction))) for direction in coefficients}
        mix = Mix(id=name, base=find_captioner(self.plan.base), directions=directions, coefficients=coefficients)
        write_mix_card(folder, mix)
        return folder

    def _subject(self, label: str, row: Row) -> Subject:
        if row.run is not None:
            source = self.checkpoint(row.run)
        else:
            source = row.model or str(self.mix(row.mix or {}))
        return Subject(source, label=label, decode=row.decode, descriptiveness=row.descriptiveness)

    def _measure(self, table: Table, subjects: Sequence[Subject]) -> list[Measured]:
        scorers = [self.checkpoint(scorer) if scorer in self.plan.runs else scorer for scorer in self.plan.scorers]
        settings = EvaluationSettings(
            decode=table.decode, num_captions=table.num_captions, scorers=scorers, metrics=table.metrics
        )
        keyed = [(subject, repr((replace(subject, label=None), table.split, settings))) for subject in subjects]
        new = [(subject, key) for subject, key in keyed if key not in self._measured]
        if new:
            set_threads(None, respect_omp=True)  # a recipe may have set another number
            data = Selection(self.plan.data, split=table.split)
            found = evaluate_each([subject for subject, _ in new], data, settings, notify=logger.info)
            self._measured |= {key: measured for (_, key), measured in zip(new, found, strict=True)}
        known = [(subject, self._measured[key]) for subject, key in keyed]
        return [replace(one, evaluation=replace(one.evaluation, label=subject.name())) for subject, one in known]

    def _make_table(self, name: str, table: Table) -> None:
        logger.info("table %s", name)
        subjects = [self._subject(label, row) for label, row in table.all_rows().items()]
        comparison = compare(self._measure(table, subjects))
        comparison.write(self._runs / "results" / name)  # with every caption
        out, plots = self._folder / name, self._folder.parent / "plots"
        for place in (out, plots):
            place.mkdir(parents=True, exist_ok=True)
        if table.plane is not None:
            plot_plane(comparison.evaluations, table.plane, plots / f"{name}.png")
        elif all(row.descriptiveness is not None for row in table.rows.values()):
            plot_dial(comparison.evaluations, plots / f"{name}.png")
        elif has_trade_off(comparison.evaluations):
            plot_trade_off(comparison.evaluations, plots / f"{name}.png")
        write_text(out / RESULT_FILE, to_json(comparison.to_body()))  # last: it says that the table is made


def reproduce(
    folder: Annotated[Path, typer.Argument(help="Folder with experiments.yaml; the tables are written there.")],
    only: Annotated[list[str] | None, typer.Argument(help="Tables to make. Default: all.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of what is trained.")] = Path("runs"),
) -> None:
    """Train and measure whatever is missing; an interrupted run goes on where it was."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    reproduction = Reproduction(folder, runs)
    reproduction.make(_chosen(only or (), reproduction.plan))


def _chosen(names: Sequence[str], plan: Experiments) -> list[str]:
    if unknown := [name for name in names if name not in plan.tables]:
        raise DataError("wrong_schema", f"no table is called {unknown[0]!r}; there are: {', '.join(plan.tables)}")
    return list(names or plan.tables)


if __name__ == "__main__":
    run_command(reproduce)
