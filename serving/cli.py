"""The commands of ``limner`` that serving owns; ``models.cli`` finds them here."""

from __future__ import annotations

import errno
import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from models.catalog import BUNDLED, DEFAULT_MODEL, DEFAULT_SCORER, CaptionerEntry, find_by_id
from models.cli_values import key_values
from models.cpus import usable_cores
from models.drafting import DRAFT_BY_DEFAULT, DRAFT_HELP
from models.errors import RequestError
from serving.api_keys import read_api_keys
from serving.args import DEFAULT_LEDGER, AppArgs, KeyArgs, Limits, LogArgs, MonitorArgs, TracingArgs
from serving.validation import explain

_KEYS_VARIABLE = "LIMNER_API_KEYS"
_ADMIN_KEYS_VARIABLE = "LIMNER_ADMIN_KEYS"
_LIMITS = "The limits: " + ", ".join(f"{name} ({field.default})" for name, field in Limits.model_fields.items())


def serve(
    model: Annotated[
        list[str] | None, typer.Option(help="Id, folder or hub id; repeatable, default first. Default: dial.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    models_dir: Annotated[Path | None, typer.Option(help="Folder of more models.")] = None,
    scorer: Annotated[str, typer.Option(help="What gives the CLIPScores.")] = DEFAULT_SCORER,
    no_scorer: Annotated[bool, typer.Option("--no-scorer", help="Give no CLIPScores.")] = False,
    sample_share: Annotated[
        float, typer.Option(help="Share of the unscored captions to score for /metrics, off their path.", min=0, max=1)
    ] = 0.1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="default, fp32, bf16, int8 or auto.")] = "default",
    captioners: Annotated[
        int, typer.Option(help="Processes that caption, each with its own copy of the models.", min=1)
    ] = 1,
    threads: Annotated[
        int | None, typer.Option(help="torch threads of each. Default: its share of the usable cores.", min=1)
    ] = None,
    feature_cache: Annotated[
        float, typer.Option(help="Seconds that the encoded form of a picture is kept for another caption of it.", min=0)
    ] = 60.0,
    draft: Annotated[bool, typer.Option(help=DRAFT_HELP)] = DRAFT_BY_DEFAULT,
    limit: Annotated[list[str] | None, typer.Option(help=f"NAME=VALUE; repeatable. {_LIMITS}.")] = None,
    experiments: Annotated[Path | None, typer.Option(help="YAML file of A/B experiments.")] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Where their outcomes go: sqlite:///FILE or postgresql://USER@HOST/DATABASE.")
    ] = None,
    api_keys: Annotated[
        Path | None, typer.Option(help=f"File of API keys, 'name: key' a line; or the same in ${_KEYS_VARIABLE}.")
    ] = None,
    images_per_minute: Annotated[
        float | None, typer.Option(help="Of each key that has no rate of its own. Default: no limit.")
    ] = None,
    admin_keys: Annotated[
        Path | None,
        typer.Option(
            help=f"File of keys of those who may add and remove models; or the same in ${_ADMIN_KEYS_VARIABLE}."
        ),
    ] = None,
    cors_origin: Annotated[list[str] | None, typer.Option(help="Origin whose pages may ask; repeatable.")] = None,
    log_dir: Annotated[Path | None, typer.Option(help="Folder of the log. Default: Ray's.")] = None,
    trace_endpoint: Annotated[
        str | None,
        typer.Option(help="Where traces go by OTLP/HTTP: http://HOST:4318. Default: $OTEL_EXPORTER_OTLP_ENDPOINT."),
    ] = None,
    trace_share: Annotated[
        float | None, typer.Option(help="Share of the requests to trace. Default: all.", min=0, max=1)
    ] = None,
    access_log: Annotated[bool, typer.Option(help="A line in the log for every request.")] = True,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the log of every process.")] = False,
) -> None:
    """Serve captions over HTTP on this machine until told to stop."""
    _exit_on_signals()
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray, when imported: 127.0.0.1 as on a Mac
    from serving.experiments.checks import check_arms  # deferred, as below: Ray takes seconds to load
    from serving.experiments.database import open_database
    from serving.experiments.definition import read_experiments
    from serving.local import check_address, deployed, local_ray
    from serving.served_models import ServedModels
    from serving.tracing import with_tracing

    if models_dir is not None and not models_dir.is_dir():
        raise RequestError("invalid_request", f"--models-dir {models_dir} is no folder")
    if not no_scorer and isinstance(find_by_id(scorer, (models_dir, BUNDLED)), CaptionerEntry):
        raise RequestError("invalid_request", f"--scorer {scorer}: this is a captioner; a scorer is needed")
    if captioners > (cores := usable_cores()):
        detail = f"--captioners {captioners}: each needs a core, and this machine lets limner use {cores}"
        raise RequestError("invalid_request", detail)
    args = _app_args(
        models=tuple(model or (DEFAULT_MODEL,)),
        models_dir=models_dir,
        scorer=None if no_scorer else scorer,
        device=device,
        dtype=dtype,
        captioners=captioners,
        threads=threads,
        feature_cache_s=feature_cache,
        draft=draft,
        limits=_limits(limit or ()),
        experiments=read_experiments(experiments) if experiments else (),
        ledger=ledger or DEFAULT_LEDGER,
        monitor=MonitorArgs(sample_share=sample_share),
        api_keys=_keys(api_keys, images_per_minute),
        admin_keys=_keys_of(admin_keys, _ADMIN_KEYS_VARIABLE),
        cors_origins=tuple(cors_origin or ()),
        tracing=_tracing(trace_endpoint, trace_share),
    )
    args = with_tracing(args, os.environ)
    check_arms(args.experiments, ServedModels.from_args(args))  # what is wrong is told at once, not after a minute
    if args.experiments:
        with open_database(args.ledger):
            pass
    if log_dir is not None:
        _make_folder("--log-dir", log_dir)
    check_address(host, port)
    typer.echo(f"starting with {', '.join(args.models)}; this takes some seconds", err=True)
    with _told_by_ray(), local_ray(verbose=verbose) as ray_logs:
        _exit_on_signals()  # again: Ray has set its own
        logs = log_dir.resolve() if log_dir else ray_logs
        args = args.model_copy(update={"logs": LogArgs(folder=logs, access=access_log)})
        with deployed(args, host, port) as url:
            typer.echo(f"limner is ready on {url} (logs: {logs})")
            typer.echo(_example(url, needs_key=args.api_keys is not None))
            while True:
                signal.pause()


def _make_folder(option: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = None if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise RequestError("invalid_request", f"{option} {folder}: no folder to write to: {reason}")


def _limits(words: Sequence[str]) -> Limits:
    """The limits with those of ``--limit`` in place of the defaults."""
    given = key_values(words)
    if unknown := [name for name in given if name not in Limits.model_fields]:
        raise RequestError("invalid_request", f"--limit: there is no limit {unknown[0]!r}. {_LIMITS}")
    try:
        return Limits.model_validate(given, strict=True)
    except ValidationError as error:
        raise RequestError("invalid_request", f"--limit {explain(error)}") from None


def _app_args(**given: Any) -> AppArgs:
    try:
        return AppArgs(**given)
    except ValidationError as error:
        raise RequestError("invalid_request", explain(error)) from None


def _keys(file: Path | None, images_per_minute: float | None) -> KeyArgs | None:
    """As ``_keys_of``, for clients."""
    keys = _keys_of(file, _KEYS_VARIABLE, images_per_minute)
    if keys is None and images_per_minute is not None:
        raise RequestError("invalid_request", "--images-per-minute is a rate of keys: give --api-keys as well")
    return keys


def _keys_of(file: Path | None, variable_name: str, images_per_minute: float | None = None) -> KeyArgs | None:
    """Where the keys are, once they have been read: what is wrong with them is told at once."""
    variable = variable_name if file is None and os.environ.get(variable_name) else None
    if file is None and variable is None:
        return None
    try:
        args = KeyArgs(file=file and file.resolve(), env=variable, images_per_minute=images_per_minute)
    except ValidationError as error:
        raise RequestError("invalid_request", explain(error)) from None
    read_api_keys(args)
    return args


def _tracing(endpoint: str | None, share: float | None) -> TracingArgs | None:
    """Where traces go; None: nowhere, unless the environment says otherwise."""
    from serving.tracing import endpoint_of

    endpoint = endpoint or endpoint_of(os.environ)
    if endpoint is None:
        if share is not None:
            raise RequestError("invalid_request", "--trace-share is a share of traces: give --trace-endpoint as well")
        return None
    try:
        return TracingArgs(endpoint=endpoint, sample_share=share)
    except ValidationError as error:
        raise RequestError("invalid_request", f"--trace-endpoint: {explain(error)}") from None


def _exit_on_signals() -> None:
    """Leave in good order on SIGTERM and SIGINT, whatever is under way; a second signal cuts the draining short."""

    def leave(*_: object) -> NoReturn:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


@contextmanager
def _told_by_ray() -> Iterator[None]:
    """Leave as ``_exit_on_signals`` does where Ray, while it starts, has a handler of its own for SIGTERM."""
    try:
        yield
    except SystemExit as stop:
        if stop.code == signal.SIGTERM:
            raise SystemExit(0) from None
        raise


def _example(url: str, *, needs_key: bool) -> str:
    """A command to try, on a photograph of the checkout where there is one."""
    folders = (Path("examples"), Path(__file__).resolve().parents[1] / "examples")
    photos = [photo for folder in folders for photo in sorted(folder.glob("*.jpg"))]
    photo = shlex.quote(str(photos[0] if photos else "photo.jpg"))
    key = " -H 'x-api-key: KEY'" if needs_key else ""
    return f"try: curl -s --data-binary @{photo} -H 'content-type: image/jpeg'{key} {url}/v1/captions"
