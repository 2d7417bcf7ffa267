"""The outcome of an evaluation, as data and as files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from models import card
from models.catalog import CatalogEntry
from models.errors import RequestError
from training.metrics.interface import Measurement

IntervalMethod = Literal["percentile", "jackknife"]


@dataclass(frozen=True)
class Difference:
    """How a number differs from the same number of another captioner on the same images."""

    to: str
    value: float
    interval: tuple[float, float]
    p: float
    """Two-sided, not corrected for the number of tests."""
    test: str


@dataclass(frozen=True)
class Estimate:
    """What a sample of images tells of a number."""

    interval: tuple[float, float]
    method: IntervalMethod
    difference: Difference | None = None


@dataclass(frozen=True)
class Evaluation:
    """What was measured on one captioner, file of captions or scorer, and everything that the numbers depend on."""

    label: str
    context: Mapping[str, Any]
    """Split, decoding, data, scorers, dtype and so on; plain data, without times and dates."""
    measurements: tuple[Measurement, ...]
    captions: tuple[Mapping[str, Any], ...] = ()
    """One row per image, in the order of the split."""
    timing: Mapping[str, Any] = field(default_factory=dict)
    """How long the captions took."""
    estimates: Mapping[tuple[str, str | None], Estimate] = field(default_factory=dict)
    """By name and scorer of a measurement; there are some where captioners were compared."""

    def value(self, name: str, scorer: str | None = None) -> float:
        """The number called ``name``; under ``scorer`` where several scorers give it. KeyError when there is none."""
        for measurement in self.measurements:
            if measurement.name == name and scorer in (None, measurement.scorer):
                return measurement.value
        raise KeyError(name)

    def estimate(self, measurement: Measurement) -> Estimate | None:
        """The interval of one of the measurements, where there is one."""
        return self.estimates.get((measurement.name, measurement.scorer))

    def show(self, measurement: Measurement) -> str:
        """One of the numbers as tables show it, with its interval where there is one."""
        value, scale = measurement.value, measurement.table_scale
        estimate = self.estimate(measurement)
        if estimate is None:
            return show(value, scale)
        return f"{show(value, scale)} {show_interval(estimate.interval, scale, decimals_of(value, scale))}"

    def to_body(self) -> dict[str, Any]:
        """The evaluation without captions and timing, as plain data: what ``evaluation.json`` holds."""
        measurements = []
        for measurement in self.measurements:
            estimate = self.estimate(measurement)
            further = {} if estimate is None else {k: v for k, v in asdict(estimate).items() if v is not None}
            measurements.append(asdict(measurement) | further)
        return {"label": self.label, **self.context, "measurements": measurements}

    def to_json(self) -> str:
        """``to_body`` as text; equal runs give equal texts."""
        return to_json(self.to_body())

    def to_markdown(self) -> str:
        """A table with a row per number, then the conditions of the measurement."""
        heading = "| measure | value | scorer or tokenizer | definition |"
        lines = [f"# Evaluation of {self.label}", "", heading, "|---|---|---|---|"]
        lines += [self._row(measurement) for measurement in self.measurements]
        lines += ["", *conditions_table({**self.context, **self.timing})]
        return "\n".join(lines) + "\n"

    def card_measurements(self) -> list[card.Measurement]:
        """The numbers as a checkpoint's card holds them: one record per scorer, per tokeniser, and for the rest."""
        grouped: dict[tuple[str | None, str | None], dict[str, float]] = {}
        for measurement in self.measurements:
            values = grouped.setdefault((measurement.scorer, measurement.tokenizer), {})
            values[measurement.name] = measurement.value
        decode = self.context.get("decode")
        return [
            card.Measurement(
                split=self.context["split"],
                images=self.context["images"],
                values=values,
                decoding=card.Decoding.model_validate(decode) if decode else None,
                scorer=scorer,
                tokenizer=tokenizer,
            )
            for (scorer, tokenizer), values in grouped.items()
        ]

    def write(self, folder: Path) -> None:
        """Writes ``evaluation.json`` and ``.md``, and ``captions.jsonl`` and ``timing.json`` where there are any."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "evaluation.json", self.to_json())
        write_text(folder / "evaluation.md", self.to_markdown())
        if self.captions:
            rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in self.captions)
            write_text(folder / "captions.jsonl", "".join(rows))
        if self.timing:
            write_text(folder / "timing.json", to_json(self.timing))

    def _row(self, measurement: Measurement) -> str:
        under = measurement.scorer or measurement.tokenizer or ""
        remark = "; ".join((measurement.definition, *measurement.notes))
        heading = heading_of(measurement.name, measurement.table_scale)
        return f"| {heading} | {self.show(measurement)} | {under} | {cell(remark)} |"


def update_card(entry: CatalogEntry, evaluation: Evaluation) -> None:
    """Put the numbers into the card of a checkpoint folder, in place of older ones of the same split and conditions.

    Raises:
        RequestError: ``invalid_request``, the model has no folder with a card of its own; ``unsupported_option``, the
            numbers depend on what a card has no place for.
    """
    if entry.path is None or not (entry.path / card.CARD_FILE).is_file():
        raise RequestError("invalid_request", f"{entry.id!r} has no {card.CARD_FILE} to put the numbers into")
    if evaluation.context.get("distractors") or evaluation.context.get("num_captions", 1) > 1:
        detail = "a card says nothing of distractors and of several captions per image: measure without them"
        raise RequestError("unsupported_option", detail)
    new = evaluation.card_measurements()
    kept = [old for old in entry.card.measurements if _conditions(old) not in map(_conditions, new)]
    changed = entry.card.model_copy(update={"measurements": [*kept, *new]})
    write_text(entry.path / card.CARD_FILE, card.dump_card(changed))


def heading_of(name: str, scale: float) -> str:
    """What a table calls a number."""
    return name if scale == 1 else f"{name} x{scale:g}"


def decimals_of(value: float, scale: float) -> int:
    """How many decimals tables show of a number: two, three of small ones that no scale enlarges."""
    return 3 if scale == 1 and abs(value) < 1 else 2


def show(value: float, scale: float) -> str:
    """A number as tables show it."""
    return fixed(value * scale, decimals_of(value, scale))


def show_interval(interval: tuple[float, float], scale: float, decimals: int) -> str:
    """An interval as tables show it, with the decimals of its number."""
    low, high = interval
    return f"[{fixed(low * scale, decimals)}, {fixed(high * scale, decimals)}]"


def fixed(value: float, decimals: int, sign: str = "") -> str:
    """A number with so many decimals, never minus zero; ``sign`` + for a sign before every number."""
    return f"{round(value, decimals) + 0.0:{sign}.{decimals}f}"


def conditions_table(conditions: Mapping[str, Any]) -> list[str]:
    """The lines of a table of conditions."""
    return ["| condition | |", "|---|---|", *(f"| {key} | {cell(value)} |" for key, value in conditions.items())]


def cell(value: Any) -> str:
    """Plain data as the cell of a table."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.replace("|", "\\|").split())


def to_json(body: Any) -> str:
    """Plain data as the text of a file."""
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def write_text(path: Path, text: str) -> None:
    """Writes a file that is the same on every system."""
    path.write_text(text, encoding="utf-8", newline="\n")


def _conditions(measured: card.Measurement) -> tuple[object, ...]:
    return (measured.split, measured.decoding, measured.scorer, measured.tokenizer)
