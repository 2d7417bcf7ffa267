"""``limner models list`` and ``limner models show``. Loads no torch."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from models.card import ArithmeticCard, Card, Decoding, FilePart, Measurement, MixCard, ScorerCard, SpectrumCard
from models.catalog import find_model, model_ids
from models.errors import LimnerError
from models.file_hashes import verify_files
from models.mixing.references import verify_mix

HEADLINES = ("cider", "r_at_1")
"""The measures that speak for a model in a list, most telling first."""

ModelsDir = Annotated[Path | None, typer.Option(help="Folder of more models.", exists=True, file_okay=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def list_(models_dir: ModelsDir = None, as_json: Json = False) -> None:
    """List limner's own models and those of a models folder."""
    cards, failed = [], False
    for name in model_ids(models_dir):
        try:
            cards.append((name, find_model(name, models_dir).card))
        except LimnerError as error:
            failed = True
            typer.echo(f"error: {error}", err=True)
    if as_json:
        typer.echo(json.dumps([_facts(name, card) for name, card in cards], indent=2, ensure_ascii=False))
    else:
        rows: list[tuple[str, ...]] = [("ID", "KIND", "FAMILY", "MEASURED", "DESCRIPTION")]
        rows += [tuple(str(value or "-") for value in _facts(*entry).values()) for entry in cards]
        for line in _table(rows):
            typer.echo(line)
    if failed:
        raise typer.Exit(1)


def show(
    model: Annotated[str, typer.Argument(help="Id, folder or hub id.")],
    models_dir: ModelsDir = None,
    as_json: Json = False,
) -> None:
    """Print a model's card. Its files are compared with it first."""
    entry = find_model(model, models_dir)
    if entry.path is not None:
        verify_files(entry.path, entry.card)
        if isinstance(entry.card, ArithmeticCard):
            verify_mix(entry.card, entry.path, models_dir)
    if as_json:
        facts = entry.card.model_dump(mode="json", exclude_none=True)
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    for line in _card_lines(entry.card):
        typer.echo(line)
    typer.echo(f"folder       {entry.path}" if entry.path else "folder       none")


def _facts(name: str, card: Card) -> dict[str, str | None]:
    family = None if isinstance(card, ScorerCard) else card.family
    return {
        "id": name,
        "kind": card.kind,
        "family": family,
        "measured": _headline(card),
        "description": card.description,
    }


def _headline(card: Card) -> str | None:
    """The most telling number, of the test split if there is one."""
    for split in ("test", "val"):
        for name in HEADLINES:
            for measurement in card.measurements:
                if measurement.split == split and name in measurement.values:
                    return f"{name} {measurement.values[name]:.3f} ({split})"
    return None


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows with aligned columns; the last one is left ragged."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _card_lines(card: Card) -> Iterator[str]:
    named: list[tuple[str, object]] = [("id", card.id), ("kind", card.kind)]
    if not isinstance(card, ScorerCard):
        named.append(("family", card.family))
        if card.decoding is not None:
            named.append(("decoding", _decoding(card.decoding)))
    named += [("description", card.description), ("licence", card.licence)]
    if card.objective:
        named.append(("objective", _call(card.objective.name, card.objective.options)))
    if isinstance(card, MixCard):
        named += _mix_lines(card)
    if isinstance(card, SpectrumCard):
        named += _spectrum_lines(card)
    if isinstance(card, ScorerCard):
        named.append(("score", f"{card.weight} * max(cos, 0), prefix {card.prefix!r}"))
        if card.score_range:
            named.append(("range", "{:.3f} to {:.3f} on human captions".format(*card.score_range)))
    for data in card.data:
        size = f"{data.images} images, {data.captions} captions"
        named.append(("data", f"{data.name} {data.split}: {size}; {data.terms}"))
    named += [("from", origin) for origin in card.origin]
    named += [(name, value) for name in ("seed", "git_revision") if (value := getattr(card, name)) is not None]
    named += [("measured", _measured(measurement)) for measurement in card.measurements]
    named += [("file", f"{name} {sha256[:16]}… verified") for name, sha256 in _hashes(card)]
    for key, value in named:
        yield f"{key:<12} {value}"


def _mix_lines(card: MixCard) -> Iterator[tuple[str, str]]:
    yield "base", f"{card.base.model} {card.base.sha256[:16]}… verified"
    for name, direction in card.directions.items():
        source = f"{direction.model} {direction.sha256[:16]}… verified"
        yield "direction", f"{direction.coefficient:+g} {name}: {source}"


def _spectrum_lines(card: SpectrumCard) -> Iterator[tuple[str, str]]:
    yield "base", f"{card.base.model} {card.base.sha256[:16]}… verified"
    for name, reference in card.directions.items():
        yield "direction", f"{name}: {reference.model} {reference.sha256[:16]}… verified"
    yield "default", f"descriptiveness {card.default:g}"
    if measured := card.calibration:
        scorer = f"; scorer {measured.scorer}" if measured.scorer else ""
        yield "calibrated", f"{measured.split}, {measured.images} images; {_decoding(measured.decoding)}{scorer}"
    for point in card.grid:
        terms = " ".join(f"{value:+.3g} {name}" for name, value in point.coefficients.items())
        words = [] if point.expected_words is None else [f"{point.expected_words:.1f} words"]
        values = ", ".join([*words, *(f"{name} {value:.4g}" for name, value in point.measures.items())])
        told = [f"{point.descriptiveness:.2f}:", values, f"({terms or 'the base'})"]
        yield "point", " ".join(filter(None, told))


def _hashes(card: Card) -> Iterator[tuple[str, str]]:
    """sha256 of every file of the folder."""
    for part in () if isinstance(card, ArithmeticCard) else card.parts.values():
        if isinstance(part, FilePart):
            yield part.file, part.sha256
    yield from card.files.items()


def _measured(measurement: Measurement) -> str:
    values = ", ".join(f"{name} {value:.4g}" for name, value in measurement.values.items())
    decoding = measurement.decoding
    context = [f"{measurement.split}, {measurement.images} images"]
    context += [_decoding(decoding)] if decoding else []
    context += [f"{kind} {name}" for kind in ("scorer", "tokenizer") if (name := getattr(measurement, kind))]
    return f"{values} ({'; '.join(context)})"


def _decoding(decoding: Decoding) -> str:
    call = _call(decoding.name, decoding.options)
    return call if decoding.guidance == 1.0 else f"{call} guidance={decoding.guidance:g}"


def _call(name: str, options: dict[str, object]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in options.items())])
