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
    bin_folder = programs()
    assert bin_folder is not None
    folder = Path(tempfile.mkdtemp(prefix="limner-pg-"))  # not pytest's: its parents are closed to other users
    someone = _not_root()
    if someone:
        shutil.chown(folder, *someone.values())
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, **someone}
    data = folder / "data"
    initdb = [bin_folder / "initdb", "-D", data, "-U", "limner", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]
    subprocess.run(initdb, check=True, **quiet)
    command = [bin_folder / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stderr=log, **quiet)
    try:
        _wait(bin_folder, folder, server)
        yield f"postgresql://limner@/{{}}?host={folder}"
    finally:
        server.send_signal(signal.SIGQUIT)  # "immediate": nobody needs what it holds
        server.wait(30)
        shutil.rmtree(folder)


def _not_root() -> dict[str, Any]:
    """Arguments of a process that may start the server, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid}


def _wait(bin_folder: Path, folder: Path, server: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + _READY_WITHIN_S
    while subprocess.run([bin_folder / "pg_isready", "-q", "-h", folder, "-U", "limner"], check=False).returncode:
        assert server.poll() is None and time.monotonic() < give_up, (folder / "log").read_text("utf-8", "replace")
        time.sleep(0.05)
