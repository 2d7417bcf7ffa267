"""The outcome of a comparison, as data and as files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.metrics.interface import Measurement
from training.report import (
    Evaluation,
    cell,
    conditions_table,
    decimals_of,
    fixed,
    heading_of,
    show_interval,
    to_json,
    write_text,
)

_SMALLEST_P = 0.001
_NO_FILE_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class Comparison:
    """Captioners that were measured alike; differences are to the first."""

    evaluations: tuple[Evaluation, ...]
    method: str
    """How intervals and p values were computed."""

    def to_body(self) -> dict[str, Any]:
        """What ``comparison.json`` holds: an evaluation's body for each captioner."""
        bodies = [evaluation.to_body() for evaluation in self.evaluations]
        return {"method": self.method, "evaluations": bodies}

    def to_markdown(self) -> str:
        """One table with a row per number and a column per captioner, then definitions and conditions."""
        names = [evaluation.label for evaluation in self.evaluations]
        lines = [f"# Comparison of {', '.join(names)}", ""]
        lines += [
            f"| measure | scorer or tokenizer | {' | '.join(map(cell, names))} |",
            "|---" * (len(names) + 2) + "|",
        ]
        first = self.evaluations[0].measurements
        for number, measurement in enumerate(first):
            cells = [_cell(evaluation, evaluation.measurements[number]) for evaluation in self.evaluations]
            under = measurement.scorer or measurement.tokenizer or ""
            lines.append(f"| {_heading(measurement)} | {under} | {' | '.join(cells)} |")
        lines += ["", self.method, "", "| measure | definition |", "|---|---|"]
        lines += dict.fromkeys(map(self._definition, range(len(first))))
        lines += ["", *conditions_table(self._conditions())]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        """Writes ``comparison.json``, ``comparison.md`` and, in a folder for each captioner, its evaluation."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "comparison.json", to_json(self.to_body()))
        write_text(folder / "comparison.md", self.to_markdown())
        for number, evaluation in enumerate(self.evaluations):
            evaluation.write(folder / f"{number}-{_NO_FILE_NAME.sub('-', evaluation.label)}")

    def _definition(self, number: int) -> str:
        """What a number means, and the notes that hold for all captioners."""
        same = [evaluation.measurements[number] for evaluation in self.evaluations]
        notes = [note for note in same[0].notes if all(note in other.notes for other in same)]
        return f"| {same[0].name} | {cell('; '.join((same[0].definition, *notes)))} |"

    def _conditions(self) -> dict[str, Any]:
        """Those that all share, then by captioner those that they do not."""
        contexts = [evaluation.context for evaluation in self.evaluations]
        names = dict.fromkeys(name for context in contexts for name in context)
        shared = {
            name: contexts[0][name]
            for name in names
            if all(name in context and context[name] == contexts[0][name] for context in contexts)
        }
        own = {
            f"{evaluation.label}: {name}": evaluation.context[name]
            for evaluation in self.evaluations
            for name in names
            if name not in shared and name in evaluation.context
        }
        return shared | own


def _heading(measurement: Measurement) -> str:
    return heading_of(measurement.name, measurement.table_scale)


def _cell(evaluation: Evaluation, measurement: Measurement) -> str:
    scale, estimate = measurement.table_scale, evaluation.estimate(measurement)
    decimals, shown = decimals_of(measurement.value, scale), evaluation.show(measurement)
    if estimate is None or (difference := estimate.difference) is None:
        return shown
    p = f"p < {_SMALLEST_P}" if difference.p < _SMALLEST_P else f"p = {difference.p:.3f}"
    apart = f"{fixed(difference.value * scale, decimals, '+')} {show_interval(difference.interval, scale, decimals)}"
    return f"{shown}; {apart}, {p}"
