"""The outcome of an evaluation, as data and as files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models import card
from models.catalog import CatalogEntry
from models.errors import RequestError
from training.metrics.interface import Measurement


@dataclass(frozen=True)
class Evaluation:
    """What was measured on one model or scorer, and everything that the numbers depend on."""

    model: str
    context: Mapping[str, Any]
    """Split, decoding, data, scorers, dtype, timing and so on; plain data."""
    measurements: tuple[Measurement, ...]
    captions: tuple[Mapping[str, Any], ...] = ()
    """One row per caption, in the order of the split."""

    def value(self, name: str, scorer: str | None = None) -> float:
        """The number called ``name``; under ``scorer`` where several scorers give it. KeyError when there is none."""
        for measurement in self.measurements:
            if measurement.name == name and scorer in (None, measurement.scorer):
                return measurement.value
        raise KeyError(name)

    def to_json(self) -> str:
        """The evaluation without its captions."""
        measurements = [asdict(measurement) for measurement in self.measurements]
        body = {"model": self.model, **self.context, "measurements": measurements}
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"

    def to_markdown(self) -> str:
        """A table with a row per number, then the conditions of the measurement."""
        heading = "| measure | value | scorer or tokenizer | definition |"
        lines = [f"# Evaluation of {self.model}", "", heading, "|---|---|---|---|"]
        lines += [_row(measurement) for measurement in self.measurements]
        lines += ["", "| condition | |", "|---|---|"]
        lines += [f"| {key} | {_cell(value)} |" for key, value in self.context.items()]
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
                decoding=card.Named.model_validate(decode) if decode else None,
                scorer=scorer,
                tokenizer=tokenizer,
            )
            for (scorer, tokenizer), values in grouped.items()
        ]

    def write(self, folder: Path) -> None:
        """Writes ``evaluation.json``, ``evaluation.md`` and, where there are captions, ``captions.jsonl``."""
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "evaluation.json", self.to_json())
        _write(folder / "evaluation.md", self.to_markdown())
        if self.captions:
            rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in self.captions)
            _write(folder / "captions.jsonl", "".join(rows))


def update_card(entry: CatalogEntry, evaluation: Evaluation) -> None:
    """Put the numbers into the card of a checkpoint folder, in place of older ones of the same split and conditions.

    Raises:
        RequestError: ``invalid_request``, the model has no folder with a card of its own.
    """
    if entry.path is None or not (entry.path / card.CARD_FILE).is_file():
        raise RequestError("invalid_request", f"{entry.id!r} has no {card.CARD_FILE} to put the numbers into")
    new = evaluation.card_measurements()
    kept = [old for old in entry.card.measurements if _conditions(old) not in map(_conditions, new)]
    changed = entry.card.model_copy(update={"measurements": [*kept, *new]})
    _write(entry.path / card.CARD_FILE, card.dump_card(changed))


def _conditions(measured: card.Measurement) -> tuple[object, ...]:
    return (measured.split, measured.decoding, measured.scorer, measured.tokenizer)


def _row(measurement: Measurement) -> str:
    scale = measurement.table_scale
    name = measurement.name if scale == 1 else f"{measurement.name} x{scale:g}"
    under = measurement.scorer or measurement.tokenizer or ""
    remark = "; ".join((measurement.definition, *measurement.notes))
    return f"| {name} | {measurement.value * scale:.{_decimals(measurement)}f} | {under} | {_cell(remark)} |"


def _decimals(measurement: Measurement) -> int:
    """Two decimals, three for small numbers that no scale enlarges."""
    return 3 if measurement.table_scale == 1 and abs(measurement.value) < 1 else 2


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("|", "\\|")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
