"""``limner models install``, ``versions`` and ``rollback``: on disk, and in a running server if one is named."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Annotated

import httpx
import typer

from models import versions as installed
from models.errors import RequestError

_KEY_VARIABLE = "LIMNER_ADMIN_KEY"
_ADDRESS = re.compile(r"https?://([^\s/?#\[\]]+|\[[0-9A-Fa-f:.]+\](:[0-9]+)?)(/[^\s?#]*)?")
_TIMEOUT_S = 340.0  # beyond what the server gives its captioners to load

Model = Annotated[str, typer.Argument(help="The id.")]
ModelsDir = Annotated[Path, typer.Option(help="Folder of models.", exists=True, file_okay=False)]
Server = Annotated[
    str | None,
    typer.Option(
        help=f"Address of a running server that is to serve it at once; its admin key is in ${_KEY_VARIABLE}."
    ),
]


def install(
    folder: Annotated[Path, typer.Argument(help="A checkpoint folder.")],
    models_dir: ModelsDir,
    id_: Annotated[str | None, typer.Option("--id", help="Default: the folder's name.")] = None,
    server: Server = None,
) -> None:
    """Copy a checkpoint into a models folder, as the current version of its id."""
    key = _key(server)
    version = installed.install(folder, models_dir, id_)
    typer.echo(f"{version.model}: version {version.number} is current, in {version.path}")
    _serve(server, key, version.model)


def versions(model: Model, models_dir: ModelsDir) -> None:
    """List the versions of a model that were installed; the current one is marked."""
    for version in installed.versions(models_dir, model):
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(version.path.stat().st_mtime))
        typer.echo(f"{'*' if version.current else ' '} {version.number}  {written}  {version.path}")


def rollback(
    model: Model,
    models_dir: ModelsDir,
    to: Annotated[int | None, typer.Option(help="Number of the version. Default: the one before.", min=1)] = None,
    server: Server = None,
) -> None:
    """Make an earlier version of a model the current one again."""
    key = _key(server)
    version = installed.rollback(models_dir, model, to)
    typer.echo(f"{model}: version {version.number} is current, in {version.path}")
    _serve(server, key, model)


def _key(server: str | None) -> str:
    """The admin key. That it is missing, or that the address is none, is told before anything is changed."""
    key = os.environ.get(_KEY_VARIABLE, "")
    if server is not None and not _ADDRESS.fullmatch(server):
        raise RequestError("invalid_request", f"--server {server!r} is no address; write http://HOST:PORT")
    if server is not None and not (key.isascii() and key.isprintable() and key.strip()):
        raise RequestError("invalid_request", f"--server needs an admin key of that server in ${_KEY_VARIABLE}")
    return key


def _serve(server: str | None, key: str, model: str) -> None:
    """Have a running server load the current version."""
    if server is None:
        return
    url = f"{server.rstrip('/')}/v1/admin/models"
    try:
        with httpx.Client(trust_env=False, timeout=_TIMEOUT_S) as client:  # through no proxy, which would see the key
            answer = client.post(url, json={"model": model}, headers={"x-api-key": key.strip()})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise RequestError("invalid_request", f"--server {server} does not answer: {error}") from None
    if not answer.is_success:
        try:
            detail = answer.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = answer.text[:300]
        raise RequestError("invalid_request", f"--server {server} refused {model!r} ({answer.status_code}): {detail}")
    typer.echo(f"{server} serves it")
