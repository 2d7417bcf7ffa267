"""``limner models install``, ``versions`` and ``rollback``: on disk, and in a running server if one is named."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
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
    """Copy a checkpoint into a models folder, as the current version."""
    asked = _Server.named(server)
    _tell(installed.install(folder, models_dir, id_, take_up=asked.take_up if asked else None), models_dir, asked)


def versions(model: Model, models_dir: ModelsDir) -> None:
    """List the installed versions of a model; the current has a star."""
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
    asked = _Server.named(server)
    _tell(installed.rollback(models_dir, model, to, take_up=asked.take_up if asked else None), models_dir, asked)


@dataclass
class _Server:
    """A running server that is to load what becomes current."""

    address: str
    key: str
    doubt: str = ""
    """Why it is not known whether it did."""

    @classmethod
    def named(cls, address: str | None) -> _Server | None:
        """None: there is none to ask.

        Raises:
            RequestError: ``invalid_request``; the address is none, or there is no key.
        """
        if address is None:
            return None
        key = os.environ.get(_KEY_VARIABLE, "")
        if not _ADDRESS.fullmatch(address):
            raise RequestError("invalid_request", f"--server {address!r} is no address; write http://HOST:PORT")
        if not (key.isascii() and key.isprintable() and key.strip()):
            raise RequestError("invalid_request", f"--server needs an admin key of that server in ${_KEY_VARIABLE}")
        return cls(address, key.strip())

    def take_up(self, version: installed.Version) -> None:
        """Have it load the version, which is current.

        Raises:
            RequestError: ``invalid_request``; it did not take it up.
        """
        url = f"{self.address.rstrip('/')}/v1/admin/models"
        try:
            with httpx.Client(trust_env=False, timeout=_TIMEOUT_S) as client:  # no proxy, which would see the key
                answer = client.post(url, json={"model": version.model}, headers={"x-api-key": self.key})
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise self._failed(f"does not answer: {error}") from None
        except (httpx.HTTPError, KeyboardInterrupt) as error:
            self.doubt = f"--server {self.address} was asked and gave no answer: {str(error) or 'interrupted'}"
            return
        if answer.is_success:
            return
        try:
            detail = answer.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = answer.text[:300]
        said = f"refused {version.model!r} ({answer.status_code}): {detail}"
        if answer.status_code >= 500:  # of a proxy, or of a part of the server: the others may go on
            self.doubt = f"--server {self.address} {said}"
            return
        raise self._failed(said)

    def _failed(self, why: str) -> RequestError:
        return RequestError(
            "invalid_request", f"--server {self.address} {why}; nothing was changed: what was current still is"
        )


def _tell(version: installed.Version, models_dir: Path, server: _Server | None) -> None:
    typer.echo(f"{version.model}: version {version.number} is current, in {version.path}")
    if server is not None and server.doubt:
        again = f"rollback {version.model} --to {version.number} --models-dir {models_dir} --server {server.address}"
        hint = f"'limner models {again}' asks it again, --to an earlier number goes back"
        raise RequestError("invalid_request", f"{server.doubt}; it may serve the version or not: {hint}")
    if server is not None:
        typer.echo(f"{server.address} serves it")
