"""``limner evaluate``. Loads no torch before it has something to measure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from models.cli_values import decode_words, key_values
from models.errors import RequestError
from training.evaluation.settings import EvaluationSettings, Subject

if TYPE_CHECKING:
    from training.data.selection import Progress, Selection
    from training.report import Evaluation


def evaluate(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Captioner: id, folder or hub id; a file of captions; or a scorer, whose retrieval is measured."
        ),
    ] = None,
    *,
    data: Annotated[Path, typer.Option(help="Annotation file.")],
    images_root: Annotated[Path, typer.Option(help="Folder that the file's image paths start from.")],
    data_format: Annotated[str, typer.Option("--format", help="Format of the annotation file.")] = "karpathy",
    data_option: Annotated[list[str] | None, typer.Option(help="More options of the format, key=value.")] = None,
    split: Annotated[str, typer.Option(help="Split to measure on.")] = "test",
    limit: Annotated[int | None, typer.Option(help="Only the first N images.")] = None,
    captions: Annotated[
        list[Path] | None,
        typer.Option(help="Captions to measure: COCO results, or JSON lines with image_id or file_name."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Several models: intervals, and differences to the first.")
    ] = False,
    label: Annotated[list[str] | None, typer.Option(help="What tables call a model, in order, repeatable.")] = None,
    decode: Annotated[str | None, typer.Option(help="Decoding strategy. Default: the model's own.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of the strategy, key=value.")] = None,
    guidance: Annotated[
        float | None, typer.Option(help="0 to 10; above 1 the picture counts for more; 1 is off.")
    ] = None,
    descriptiveness: Annotated[
        float | None,
        typer.Option(help="0 concise to 1 descriptive; of models with a spectrum. Default: the model's own."),
    ] = None,
    num_captions: Annotated[int, typer.Option(help="Captions per image, for diversity and oracle metrics.")] = 1,
    metric: Annotated[
        list[str] | None,
        typer.Option(help='Metric, repeatable: a name, "default", or JSON {"name", "options"}. Default: "default".'),
    ] = None,
    scorer: Annotated[
        list[str] | None, typer.Option(help="Scorer for CLIPScore and self-retrieval, repeatable.")
    ] = None,
    distractors: Annotated[
        str | None, typer.Option(help="Split whose other images join the pool of retrieval.")
    ] = None,
    tokenizer: Annotated[str, typer.Option(help="For BLEU, CIDEr and kin: auto, java or python.")] = "auto",
    batch_size: Annotated[int, typer.Option(help="Images per batch.")] = 32,
    models_dir: Annotated[Path | None, typer.Option(help="Folder of more models.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or auto.")] = "fp32",
    threads: Annotated[int | None, typer.Option(help="torch threads. Default: the usable cores.")] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap samples of a comparison.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for evaluation.json, .md and captions.jsonl, or for a comparison.")
    ] = None,
    update_card: Annotated[bool, typer.Option("--update-card", help="Keep the numbers in the model's card.")] = False,
) -> None:
    """Measure captioners, files of captions, or a scorer on a split. Prints a Markdown table."""
    from models.device import set_threads  # these load torch, which `limner --help` should not wait for
    from training.data.selection import Selection

    subjects = _subjects(models or (), captions or (), label or (), compare=compare)
    if descriptiveness is not None:
        subjects = _moved(subjects, descriptiveness, models_dir, update_card=update_card)
    if update_card and (compare or subjects[0].is_file):
        raise RequestError("invalid_request", "--update-card is for the evaluation of one model")
    settings = EvaluationSettings(
        decode=decode_words(decode, option or (), guidance),
        num_captions=num_captions,
        scorers=tuple(scorer or ()),
        metrics=None if metric is None else [_metric(word) for word in metric],
        distractors=distractors,
        tokenizer=tokenizer,
        batch_size=batch_size,
        models_dir=models_dir,
        device=device,
        dtype=dtype,
    )
    set_threads(threads, respect_omp=True)
    options = {"path": data, "images_root": images_root, **key_values(data_option or ())}
    selection = Selection(options, format=data_format, split=split, limit=limit)
    if compare:
        typer.echo(_compare(subjects, selection, settings, seed, out), nl=False)
        return
    evaluation = _evaluate(subjects[0], selection, settings)
    if out is not None:
        evaluation.write(out)
    if update_card:
        from models.catalog import find_model
        from training.report import update_card as update

        update(find_model(subjects[0].source, models_dir), evaluation)
    typer.echo(evaluation.to_markdown(), nl=False)


def _evaluate(subject: Subject, selection: Selection, settings: EvaluationSettings) -> Evaluation:
    from training.evaluate import evaluate as evaluate_captioner  # deferred: torch
    from training.evaluate_scorer import evaluate_scorer, is_scorer

    with progress_bar() as progress:
        if not subject.is_file and is_scorer(subject.source, settings.models_dir):
            return evaluate_scorer(
                subject.source,
                selection,
                batch_size=settings.batch_size,
                models_dir=settings.models_dir,
                device=settings.device,
                progress=progress,
            )
        return evaluate_captioner(subject, selection, settings, progress=progress, notify=tell)


def _compare(
    subjects: Sequence[Subject], selection: Selection, settings: EvaluationSettings, seed: int, out: Path | None
) -> str:
    """The Markdown of a comparison; its files are written."""
    from training.compare import compare  # deferred: torch
    from training.evaluate import evaluate_each
    from training.plots import check_plotting, has_trade_off, plot_trade_off

    if out is not None:
        check_plotting()  # now, and not after the captions
    with progress_bar() as progress:
        measured = evaluate_each(subjects, selection, settings, progress=progress, notify=tell)
    comparison = compare(measured, seed)
    if out is not None:
        comparison.write(out)
        if has_trade_off(comparison.evaluations):
            plot_trade_off(comparison.evaluations, out / "trade_off.png")
    return comparison.to_markdown()


def _subjects(models: Sequence[str], files: Sequence[Path], labels: Sequence[str], *, compare: bool) -> list[Subject]:
    """What is to be measured: models, of which those that name a file are captions, and then the files."""
    sources = [(model, Path(model).is_file()) for model in models] + [(str(path), True) for path in files]
    if compare and len(sources) < 2:
        raise RequestError("invalid_request", "--compare takes at least two models or files of captions")
    if not compare and len(sources) != 1:
        detail = f"{len(sources)} models are given; give one, or a file with --captions, or several with --compare"
        raise RequestError("invalid_request", detail)
    if labels and len(labels) != len(sources):
        raise RequestError("invalid_request", f"{len(labels)} labels for {len(sources)} models: give one for each")
    names: Sequence[str | None] = labels or [None] * len(sources)
    return [Subject(source, is_file, name) for (source, is_file), name in zip(sources, names, strict=True)]


def _moved(
    subjects: Sequence[Subject], descriptiveness: float, models_dir: Path | None, *, update_card: bool
) -> list[Subject]:
    """The subjects with the captioners among them at that point of their spectra."""
    from training.evaluate_scorer import is_scorer  # deferred: torch

    if update_card:
        detail = "--update-card keeps the numbers of the model as it is; limner models calibrate those of a spectrum"
        raise RequestError("invalid_request", detail)
    if all(subject.is_file or is_scorer(subject.source, models_dir) for subject in subjects):
        raise RequestError("invalid_request", "--descriptiveness is about captioners, and none is given")
    return [subject if subject.is_file else replace(subject, descriptiveness=descriptiveness) for subject in subjects]


def _metric(word: str) -> str | Mapping[str, Any]:
    """A metric by name, or with options as JSON."""
    if not word.lstrip().startswith("{"):
        return word
    try:
        spec: dict[str, Any] = json.loads(word)
    except ValueError as error:
        raise RequestError("invalid_request", f"metric {word!r} is not JSON: {error}") from error
    return spec


def tell(line: str) -> None:
    """A line for people, beside the table."""
    typer.echo(line, err=True)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on stderr, so that stdout holds the table alone."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("images", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
