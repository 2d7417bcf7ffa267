"""``limner compare``: captioners side by side on picture files, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from models.catalog import DEFAULT_SCORER
from models.cli_values import decode_words
from models.errors import RequestError
from serving.arms import FEWEST_ARMS, MOST_ARMS, check_arm_count, describe, label_arms
from serving.local_models import Wish, choose
from serving.output import Write, json_line, rows_to, stdout

if TYPE_CHECKING:
    from models.clip_scorer import ClipScorer
    from serving.compare_files import LocalArm
    from serving.compare_report import Report
    from serving.folders.sources import Sources

_SPEC = "LABEL=MODEL[@D] or MODEL[@D], D its descriptiveness from 0 to 1"


def compare(
    paths: Annotated[list[str], typer.Argument(help="Picture files, or folders of them.")],
    models: Annotated[str | None, typer.Option(help="MODEL[@D],MODEL[@D],...: arms without labels.")] = None,
    arm: Annotated[list[str] | None, typer.Option(help=f"{_SPEC}; repeatable.")] = None,
    decode: Annotated[str | None, typer.Option(help="Decoding strategy of all. Default: each model's own.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of the strategy, key=value.")] = None,
    guidance: Annotated[
        float | None, typer.Option(help="0 to 10; above 1 the picture counts for more; 1 is off.")
    ] = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Folders within folders too.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for report.html, report.md and results.jsonl.")] = None,
    show: Annotated[int, typer.Option(help="Pictures in the reports; all of them count.", min=0)] = 100,
    models_dir: Annotated[Path | None, typer.Option(help="Folder of more models.")] = None,
    scorer: Annotated[str, typer.Option(help="What gives the CLIPScores.")] = DEFAULT_SCORER,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="default, fp32, bf16, int8 or auto.")] = "default",
    threads: Annotated[int | None, typer.Option(help="torch threads. Default: the usable cores.", min=1)] = None,
    batch_size: Annotated[int, typer.Option(help="Pictures per forward pass.", min=1)] = 16,
) -> None:
    """Caption the same pictures by 2 to 6 models or points of a dial. Prints CLIPScores and paired verdicts."""
    if not models and not arm:
        detail = f"name {FEWEST_ARMS} to {MOST_ARMS} models to compare: --models concise,dial@1, or --arm for each"
        raise RequestError("invalid_request", detail)
    given = decode_words(decode, option or (), guidance)
    wishes = read_arms([*(models.split(",") if models else ()), *(arm or ())])
    chosen = {label: choose(wish, given, models_dir) for label, wish in wishes}
    from models.clip_scorer import load_scorer  # these load torch, which `limner --help` should not wait for
    from models.device import set_threads
    from serving.compare_files import LocalArm
    from serving.compare_report import Report
    from serving.folders.sources import Sources

    sources = Sources(paths, recursive)
    sources.check()
    if out is None:
        stdout()  # else there is nowhere to tell the result
    with _rows_in(out) as write:
        set_threads(threads, respect_omp=True)
        measure = load_scorer(scorer, models_dir=models_dir, device=device)
        arms = [LocalArm(label, choice, choice.load(device=device, dtype=dtype)) for label, choice in chosen.items()]
        report = Report(list(chosen.items()), measure.scorer_id, show)
        _run(arms, measure, sources, batch_size, report, write)
        if not report.comparison.pictures and not report.failures:
            raise sources.nothing()
    if report.comparison.pictures:
        if out is not None:
            report.write(out)
        typer.echo(report.markdown(), nl=False)
    if failed := len(report.failures):
        typer.echo(f"error: {failed} of {failed + report.comparison.pictures} pictures failed", err=True)
        raise typer.Exit(1)


def _run(
    arms: Sequence[LocalArm],
    scorer: ClipScorer,
    sources: Sources,
    batch_size: int,
    report: Report,
    write: Write,
) -> None:
    from serving.compare_files import compare_files  # deferred: torch
    from serving.folders.captioning import row_of
    from serving.folders.opening import open_picture
    from serving.folders.run import without_other_files

    opened = without_other_files(map(open_picture, sources), sources.skipped)
    for picture in compare_files(arms, scorer, opened, batch_size=batch_size):
        report.add(picture)
        error = picture.results[0].error
        if error is not None:
            typer.echo(f"error: {error.code}: {error.detail}", err=True)
        for arm, result in zip(arms, picture.results, strict=True):
            write({"label": arm.label, **row_of(picture.file, result, arm.pipeline.model_id)})


def read_arms(words: Sequence[str]) -> tuple[tuple[str, Wish], ...]:
    """The arms that were typed, labelled.

    Raises:
        RequestError: ``invalid_request`` for too few or many, equal labels, or a word that is no arm.
    """
    check_arm_count(len(words))
    read = [_read(word) for word in words]
    labels = label_arms([label for label, _ in read], [describe(wish.model, wish) for _, wish in read])
    return tuple(zip(labels, (wish for _, wish in read), strict=True))


def _read(word: str) -> tuple[str | None, Wish]:
    """The label and the wish of ``LABEL=MODEL[@D]``; what follows an @ and is no number belongs to the model."""
    label, equals, spec = word.partition("=")
    spec = spec if equals else word
    model, _, place = spec.rpartition("@")
    try:
        wish = Wish(model, float(place)) if model else Wish(spec)
    except ValueError:
        wish = Wish(spec)
    if not wish.model or (equals and not label):
        raise RequestError("invalid_request", f"arm {word!r} is not {_SPEC}")
    return label if equals else None, wish


@contextmanager
def _rows_in(out: Path | None) -> Iterator[Write]:
    """What writes rows to the folder's ``results.jsonl``; without a folder they are dropped."""
    if out is None:
        yield lambda row: None
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError("invalid_request", f"{str(out)!r} cannot be a folder: {error.strerror}") from error
    with rows_to(out / "results.jsonl", json_line) as write:
        yield write
