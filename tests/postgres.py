"""A PostgreSQL server of the tests' own: in a temporary folder, on a socket there, gone with the block."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

_DEBIAN = Path("/usr/lib/postgresql")
_READY_WITHIN_S = 60


def programs() -> Path | None:
    """The folder with ``initdb`` and ``postgres``; Debian keeps it off the PATH. None where there is none."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = [folder for folder in _DEBIAN.glob("*/bin") if (folder / "initdb").is_file()]
    return max(versions, key=lambda folder: float(folder.parent.name), default=None)


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a server without its path: ``{url}/postgres`` is a database. ``{}`` stands for the database."""
    with postgres() as server:
        yield server.url


@contextmanager
def postgres() -> Iterator["Postgres"]:
    """A server that runs, on a cluster of its own."""
    bin_folder = programs()
    assert bin_folder is not None
    folder = Path(tempfile.mkdtemp(prefix="limner-pg-"))  # not pytest's: its parents are closed to other users
    someone = _not_root()
    if someone:
        shutil.chown(folder, *someone.values())
    initdb = [bin_folder / "initdb", "-D", folder / "data", "-U", "limner", "-A", "trust", "-E", "UTF8"]
    initdb += ["--no-locale", "-N"]
    subprocess.run(initdb, check=True, cwd=folder, stdout=subprocess.DEVNULL, **someone)
    server = Postgres(bin_folder, folder, someone)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


class Postgres:
    """A server that can be killed, and started again on the same cluster."""

    def __init__(self, bin_folder: Path, folder: Path, someone: dict[str, Any]) -> None:
        self._bin_folder = bin_folder
        self._folder = folder
        self._someone = someone
        self._server: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://limner@/{{}}?host={folder}"
        """``{}`` stands for the database."""

    def start(self) -> None:
        """Return when it answers."""
        data, sockets = self._folder / "data", self._folder
        command = [
            self._bin_folder / "postgres",
            "-D",
            data,
            "-k",
            sockets,
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        ]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=log, **self._someone
            )
        ready = [self._bin_folder / "pg_isready", "-q", "-h", sockets, "-U", "limner"]
        give_up = time.monotonic() + _READY_WITHIN_S
        while subprocess.run(ready, check=False).returncode:
            alive = self._server.poll() is None and time.monotonic() < give_up
            assert alive, (self._folder / "log").read_text("utf-8", "replace")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        assert self._server is not None
        parent = psutil.Process(self._server.pid)
        everyone = [parent, *parent.children(recursive=True)]
        for process in everyone:
            process.kill()
        self._server.wait(30)
        psutil.wait_procs(everyone, timeout=30)

    def stop(self) -> None:
        """End it at once: nobody needs what it holds."""
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(30)


def _not_root() -> dict[str, Any]:
    """Arguments of a process that may start the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid}
