"""``limner caption``: captions of pictures, folders, archives and lists, without a server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import typer

from models.catalog import DEFAULT_MODEL, DEFAULT_SCORER
from models.cli_values import decode_words, numbers
from models.cpus import usable_cores
from models.drafting import DRAFT_BY_DEFAULT
from serving import caption_words as words
from serving.cli_compare import read_arms
from serving.folders.asked import Asked
from serving.folders.job import FolderJob
from serving.folders.ours import ours
from serving.folders.outputs import NO_ROOM, Destination, Existing, destination, open_output
from serving.folders.sources import Sources
from serving.folders.summary import RunFile, Summary
from serving.local_models import Wish
from serving.output import json_line, text_line

if TYPE_CHECKING:
    from serving.folders.captioning import Rows
    from serving.folders.outputs import Output
    from serving.folders.run import Stage


def caption(
    paths: words.Paths,
    model: words.Model = DEFAULT_MODEL,
    decode: words.Decode = None,
    option: words.DecodeOption = None,
    guidance: words.Guidance = None,
    descriptiveness: words.Descriptiveness = None,
    mix: words.Mix = None,
    target_words: words.TargetWords = None,
    num_captions: words.NumCaptions = 1,
    rerank: words.Rerank = False,
    score: words.Score = False,
    min_clip_score: words.MinClipScore = None,
    compare: words.Compare = None,
    recursive: words.Recursive = False,
    null: words.Null = False,
    json_lines: words.JsonLines = False,
    out: words.Out = None,
    format_: words.Format = None,
    existing: words.IfExisting = Existing.SKIP,
    dedupe: words.Dedupe = False,
    ray: words.Ray = False,
    actors: words.Actors = None,
    gpus_per_actor: words.GpusPerActor = None,
    models_dir: words.ModelsDir = None,
    scorer: words.Scorer = DEFAULT_SCORER,
    device: words.Device = "auto",
    dtype: words.Dtype = "default",
    threads: words.Threads = None,
    draft: words.Draft = DRAFT_BY_DEFAULT,
    batch_size: words.BatchSize = 16,
    workers: words.Workers = None,
) -> None:
    """Caption pictures, one line each or into files. What fails is told on stderr."""
    job = FolderJob(
        wish=Wish(model, descriptiveness, numbers(mix) if mix else None, target_words),
        decode=decode_words(decode, option or (), guidance),
        num_captions=num_captions,
        score=score,
        rerank=rerank,
        min_clip_score=min_clip_score,
        arms=read_arms(compare.split(",")) if compare else (),
        scorer=scorer,
        models_dir=models_dir,
        device=device,
        dtype=dtype,
        threads=threads,
        draft=draft,
    )
    asked = Asked(
        out,
        format_,
        json_lines,
        existing,
        dedupe,
        batch_size,
        workers,
        ray,
        actors=actors,
        gpus_per_actor=gpus_per_actor,
    )
    _caption(job, Sources(paths, recursive, null), asked)


def _caption(job: FolderJob, sources: Sources, asked: Asked) -> None:
    job.check()
    asked.check(sources, compares=bool(job.arms))
    kind = asked.kind()
    place = destination(kind, asked.out, sources.paths, asked.existing) if kind is not None else None
    if kind is not None and place is not None:
        sources.ours = ours(kind, place)
    sources.check()
    for remark in job.remarks():
        typer.echo(f"note: {remark}", err=True)
    summary = Summary()
    with _named(place), ExitStack() as closing:
        output, run_file = _output(asked, kind, place, sources, job)
        closing.callback(output.close)
        stage: Stage
        if asked.ray:
            from serving.folders.ray_data import RayStage

            actors, gpus = asked.actors or 1, asked.gpus_per_actor or 0.0
            stage = closing.enter_context(RayStage(job, batch_size=asked.batch_size, actors=actors, gpus=gpus))
        else:
            stage = _local_stage(job, sources, asked, summary)
        _run(sources, stage, output, run_file, summary)


@contextmanager
def _named(place: Destination | None) -> Iterator[None]:
    """A full disk is told by where the captions go: the system's errors of writing name no file."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM and error.filename is None and place is not None:
            raise OSError(error.errno, error.strerror, str(place.path)) from error
        raise


def _output(
    asked: Asked, kind: str | None, place: Destination | None, sources: Sources, job: FolderJob
) -> tuple[Output, RunFile | None]:
    """The output, ready to be written, and the record of its runs; lines on the terminal have none."""
    if kind is None or place is None:
        from serving.folders.terminal import Terminal

        return Terminal(json_line if asked.writes_json else text_line), None
    from serving.folders.inputs import check_inputs

    output = open_output(kind, place)
    check_inputs(sources, place, output)
    run_file = RunFile(kind, place, job.options(), sources.root)
    run_file.check()
    go_on = run_file.goes_on()
    if asked.existing is Existing.SKIP:
        run_file.check_options()
    output.open(go_on=go_on)
    return output, run_file


def _local_stage(job: FolderJob, sources: Sources, asked: Asked, summary: Summary) -> Stage:
    from serving.folders.captioning import OncePerContent  # these load torch, which `limner --help` should not wait for
    from serving.folders.run import LocalStage

    workers = asked.workers
    if workers is None:
        workers = max(1, usable_cores() // 2) if sources.more_than(asked.batch_size) else 0

    def count_copies(number: int) -> None:
        summary.copies += number

    def load() -> Rows:
        rows = job.load()
        return OncePerContent(rows, count_copies) if asked.dedupe else rows

    return LocalStage(load, batch_size=asked.batch_size, workers=workers, digest=asked.dedupe, draft=job.draft)


def _run(sources: Sources, stage: Stage, output: Output, run_file: RunFile | None, summary: Summary) -> None:
    from serving.folders.progress import Bar
    from serving.folders.run import run

    begun = finished = False

    def begin() -> None:
        nonlocal begun
        begun = True
        if run_file is not None:
            run_file.write("running", summary)

    try:
        with _stop_on_signals() as stopped, Bar(summary, shown=run_file is not None) as bar:
            finished = run(
                sources,
                stage,
                output,
                summary,
                stop=lambda: bool(stopped),
                begin=begin,
                watcher=bar,
                failed=bar.failed,
            )
    finally:
        if run_file is not None and (begun or (finished and summary.pictures)):
            with suppress(OSError) if not finished else nullcontext():  # the disk may be what ended it
                run_file.write("finished" if finished else "stopped", summary)
    _tell(sources, summary, finished, run_file)
    if not finished:
        raise typer.Exit(128 + stopped[0])
    if summary.failed:
        raise typer.Exit(1)


def _tell(sources: Sources, summary: Summary, finished: bool, run_file: RunFile | None) -> None:
    if finished and not summary.pictures:
        raise sources.nothing()
    if run_file is not None:
        typer.echo(summary.line(), err=True)
        if not finished:
            typer.echo("stopped: the same command goes on from here", err=True)
    elif summary.failed:
        typer.echo(f"error: {summary.failed} of {summary.pictures} pictures failed", err=True)


@contextmanager
def _stop_on_signals() -> Iterator[list[int]]:
    """Numbers of the signals that asked for an end while the block runs; the second one of them interrupts."""
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        typer.echo("stopping when the pictures under way are written; once more to leave at once", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
