"""``limner caption``: captions of pictures, folders, archives and lists, without a server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from models.catalog import DEFAULT_MODEL, DEFAULT_SCORER
from models.cli_values import decode_words, numbers
from models.cpus import usable_cores
from models.errors import RequestError
from serving.cli_compare import read_arms
from serving.folders.job import FolderJob
from serving.folders.outputs import FORMATS, Existing, destination, format_of, open_output
from serving.folders.sources import STDIN, Sources
from serving.folders.summary import RunFile, Summary
from serving.local_models import Wish
from serving.output import json_line, text_line

if TYPE_CHECKING:
    from serving.folders.captioning import Rows
    from serving.folders.outputs import Output
    from serving.folders.run import Stage

_FORMATS = ", ".join(FORMATS)


def caption(
    paths: Annotated[
        list[str], typer.Argument(help="Pictures, folders, WebDataset .tar, lists (.txt, .jsonl), or - for a list.")
    ],
    model: Annotated[str, typer.Option(help="Id, folder or hub id.")] = DEFAULT_MODEL,
    decode: Annotated[str | None, typer.Option(help="Decoding strategy. Default: the model's own.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of the strategy, key=value.")] = None,
    guidance: Annotated[
        float | None, typer.Option(help="0 to 10; above 1 the picture counts for more; 1 is off.")
    ] = None,
    descriptiveness: Annotated[
        float | None, typer.Option(help="0 concise to 1 descriptive; of models with a spectrum.")
    ] = None,
    mix: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, how far along a direction; repeatable.")] = None,
    target_words: Annotated[
        int | None, typer.Option(help="The descriptiveness with this mean length, as calibrated.", min=1)
    ] = None,
    num_captions: Annotated[int, typer.Option(help="Captions of each picture.", min=1)] = 1,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Of all that the decoding finds, those with the best CLIPScore.")
    ] = False,
    score: Annotated[bool, typer.Option("--score", help="CLIPScore after each caption.")] = False,
    min_clip_score: Annotated[
        float | None, typer.Option(help="Pictures whose captions score below get the most concise instead.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(help="[LABEL=]MODEL[@D],...: each of these captions every picture; JSON lines only.")
    ] = None,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Folders within folders too.")] = False,
    null: Annotated[bool, typer.Option("--null", "-0", help="Paths of - end with NUL, not with a line break.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="A JSON object per line.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write; the folder, for formats of many files. A killed run goes on."),
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help=f"{_FORMATS}. Default: by the suffix of --out.")
    ] = None,
    existing: Annotated[
        Existing, typer.Option(help="What becomes of captions that are there; append and prepend: of sidecars.")
    ] = Existing.SKIP,
    dedupe: Annotated[bool, typer.Option("--dedupe", help="Caption pictures of the same bytes once.")] = False,
    ray: Annotated[bool, typer.Option("--ray", help="On the Ray cluster of RAY_ADDRESS, or on this machine.")] = False,
    actors: Annotated[int, typer.Option(help="With --ray: processes that hold the model.", min=1)] = 1,
    gpus_per_actor: Annotated[float, typer.Option(help="With --ray: GPUs, or parts of one, of each.", min=0)] = 0.0,
    models_dir: Annotated[Path | None, typer.Option(help="Folder of more models.")] = None,
    scorer: Annotated[str, typer.Option(help="What gives the CLIPScores.")] = DEFAULT_SCORER,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="default, fp32, bf16, int8 or auto.")] = "default",
    threads: Annotated[int | None, typer.Option(help="torch threads. Default: the usable cores.", min=1)] = None,
    batch_size: Annotated[int, typer.Option(help="Pictures per forward pass.", min=1)] = 16,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that open pictures. Default: one per two cores; few pictures: 0.", min=0),
    ] = None,
) -> None:
    """Caption pictures, one line each or into files; what fails is told on stderr."""
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
    )
    job.check()
    sources = Sources(paths, recursive, null)
    sources.check()
    kind = format_of(format_ or ("jsonl" if json_lines and out else None), out)
    _check(kind, job, json_lines, dedupe and ray, paths)
    with ExitStack() as closing:
        output, run_file = _output(kind, out, sources, existing, job, json_lines)
        closing.callback(output.close)
        stage: Stage
        if ray:
            from serving.folders.ray_data import RayStage

            stage = closing.enter_context(RayStage(job, batch_size=batch_size, actors=actors, gpus=gpus_per_actor))
        else:
            stage = _local_stage(job, batch_size, workers, sources, dedupe)
        _run(sources, stage, output, run_file)


def _check(kind: str | None, job: FolderJob, json_lines: bool, dedupes_on_ray: bool, paths: list[str]) -> None:
    if kind is not None and json_lines and kind != "jsonl":
        raise RequestError("invalid_request", f"--json and --format {kind}: choose one")
    if job.arms and not (json_lines or kind == "jsonl"):
        raise RequestError("invalid_request", "--compare writes JSON lines: add --json or --out FILE.jsonl")
    if dedupes_on_ray:
        raise RequestError(
            "invalid_request", "--dedupe: not with --ray, whose processes do not know each other's pictures"
        )
    if kind == "webdataset" and STDIN in paths:
        raise RequestError(
            "invalid_request", "--format webdataset reads its pictures twice, - can be read once: use a list"
        )


def _output(
    kind: str | None, out: Path | None, sources: Sources, existing: Existing, job: FolderJob, json_lines: bool
) -> tuple[Output, RunFile | None]:
    """The output, ready to be written, and the record of its runs; lines on the terminal have none."""
    if kind is None:
        from serving.folders.terminal import Terminal

        return Terminal(json_line if json_lines else text_line), None
    place = destination(kind, out, sources.paths, existing)
    output = open_output(kind, place)
    run_file = RunFile(kind, place, job.options(), sources.root)
    run_file.check()
    go_on = run_file.goes_on()
    if existing is Existing.SKIP:
        run_file.check_options()
    output.open(go_on=go_on)
    return output, run_file


def _local_stage(job: FolderJob, batch_size: int, workers: int | None, sources: Sources, dedupe: bool) -> Stage:
    from serving.folders.captioning import OncePerContent  # these load torch, which `limner --help` should not wait for
    from serving.folders.run import LocalStage

    if workers is None:
        workers = max(1, usable_cores() // 2) if sources.more_than(batch_size) else 0

    def load() -> Rows:
        rows = job.load()
        return OncePerContent(rows) if dedupe else rows

    return LocalStage(load, batch_size=batch_size, workers=workers, digest=dedupe)


def _run(sources: Sources, stage: Stage, output: Output, run_file: RunFile | None) -> None:
    from serving.folders.progress import Bar
    from serving.folders.run import run

    summary = Summary()
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
