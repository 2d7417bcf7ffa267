"""The commands of ``limner`` that serving owns; ``models.cli`` finds them here."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from models.catalog import DEFAULT_MODEL, DEFAULT_SCORER, find_captioner
from models.cli_values import decode_words
from models.errors import RequestError


def serve(
    model: Annotated[list[str] | None, typer.Option(help="Id, folder or hub id; repeatable, default first.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    models_dir: Annotated[Path | None, typer.Option(help="Folder of more models.")] = None,
    scorer: Annotated[str, typer.Option(help="What gives the CLIPScores.")] = DEFAULT_SCORER,
    no_scorer: Annotated[bool, typer.Option("--no-scorer", help="Give no CLIPScores.")] = False,
    sample_share: Annotated[
        float, typer.Option(help="Share of the unscored captions to score for /metrics, off their path.", min=0, max=1)
    ] = 0.1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="default, fp32, bf16 or auto.")] = "default",
    threads: Annotated[int | None, typer.Option(help="torch threads. Default: the usable cores.", min=1)] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the log of every process.")] = False,
) -> None:
    """Serve captions over HTTP on this machine until it is told to stop."""
    _exit_on_signals()
    from serving.args import AppArgs, MonitorArgs  # deferred, as below: Ray takes seconds to load
    from serving.local import deployed, local_ray, port_is_free
    from serving.served_models import ServedModels

    args = AppArgs(
        models=tuple(model or (DEFAULT_MODEL,)),
        models_dir=models_dir,
        scorer=None if no_scorer else scorer,
        device=device,
        dtype=dtype,
        threads=threads,
        monitor=MonitorArgs(sample_share=sample_share),
    )
    ServedModels.from_args(args)  # a wrong name is told at once, not after a minute
    if not port_is_free(host, port):
        raise RequestError("invalid_request", f"port {port} of {host} is in use; choose another with --port")
    with local_ray(verbose=verbose) as logs:
        _exit_on_signals()  # again: Ray has set its own
        with deployed(args, host, port) as url:
            typer.echo(f"limner is ready on {url} (logs: {logs})")
            typer.echo(_example(url))
            while True:
                signal.pause()


def caption(
    paths: Annotated[list[str], typer.Argument(help="Picture files, or folders of them.")],
    model: Annotated[str, typer.Option(help="Id, folder or hub id.")] = DEFAULT_MODEL,
    decode: Annotated[str | None, typer.Option(help="Decoding strategy. Default: the model's own.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Option of the strategy, key=value.")] = None,
    guidance: Annotated[
        float | None, typer.Option(help="0 to 10; above 1 the picture counts for more; 1 is off.")
    ] = None,
    num_captions: Annotated[int, typer.Option(help="Captions of each picture.", min=1)] = 1,
    score: Annotated[bool, typer.Option("--score", help="CLIPScore after each caption.")] = False,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Folders within folders too.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="A JSON object per line.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the JSON lines to this file.")] = None,
    models_dir: Annotated[Path | None, typer.Option(help="Folder of more models.")] = None,
    scorer: Annotated[str, typer.Option(help="What gives the CLIPScores.")] = DEFAULT_SCORER,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="default, fp32, bf16 or auto.")] = "default",
    threads: Annotated[int | None, typer.Option(help="torch threads. Default: the usable cores.", min=1)] = None,
    batch_size: Annotated[int, typer.Option(help="Pictures per forward pass.", min=1)] = 16,
) -> None:
    """Caption picture files, one line each; what fails is told on stderr."""
    from models.decoding import parse_decode  # these load torch, which `limner --help` should not wait for
    from models.device import set_threads
    from models.pipeline import load_pipeline
    from serving.files import caption_files, find_pictures, row_of
    from serving.output import json_line, rows_to, text_line

    strategy = parse_decode(
        decode_words(decode, option or (), guidance), find_captioner(model, models_dir).card.decoding
    )
    strategy.rows(num_captions)  # refuses more captions than the strategy can give
    files = find_pictures(paths, recursive=recursive)
    if not any(os.path.lexists(file.path) for file in files):
        raise _nothing_in(paths)
    failed: list[bool] = []
    with rows_to(out, json_line if json_lines or out else text_line) as write:
        set_threads(threads, respect_omp=True)
        pipeline = load_pipeline(
            model, models_dir=models_dir, scorer=scorer if score else None, device=device, dtype=dtype
        )
        for file, image in caption_files(
            pipeline, files, strategy, num_captions=num_captions, score=score, batch_size=batch_size
        ):
            failed.append(image.error is not None)
            if image.error is not None:
                typer.echo(f"error: {image.error.code}: {image.error.detail}", err=True)
            if image.error is None or json_lines or out:
                write(row_of(file, image, pipeline.model_id))
        if not failed:
            raise _nothing_in(paths)
    if any(failed):
        typer.echo(f"error: {sum(failed)} of {len(failed)} pictures failed", err=True)
        raise typer.Exit(1)


def _nothing_in(paths: Sequence[str]) -> RequestError:
    if missing := [path for path in paths if not os.path.lexists(path)]:
        return RequestError("invalid_request", f"{missing[0]!r} does not exist")
    where = ", ".join(map(repr, paths))
    return RequestError("invalid_request", f"no pictures in {where} (-r looks into subfolders too)")


def _exit_on_signals() -> None:
    """Leave in good order on SIGTERM and SIGINT, whatever is under way; a second signal cuts the draining short."""

    def leave(*_: object) -> NoReturn:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def _example(url: str) -> str:
    """A command to try, on a photograph of the checkout where there is one."""
    folders = (Path("examples"), Path(__file__).resolve().parents[1] / "examples")
    photos = [photo for folder in folders for photo in sorted(folder.glob("*.jpg"))]
    photo = shlex.quote(str(photos[0] if photos else "photo.jpg"))
    return f"try: curl -s --data-binary @{photo} -H 'content-type: image/jpeg' {url}/v1/captions"
