"""A Ray cluster of one node that was started as a node of a real cluster is: ``ray start``, then ``serve deploy``."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from tests.serving.conftest import ROOT, free_port

_PROGRAMS = Path(sys.executable).parent
_READY_WITHIN_S = 90


@dataclass(frozen=True)
class RayNode:
    """A node that runs, with the dashboard that takes Serve's configurations."""

    dashboard: str
    agent: str
    folder: Path
    variables: Mapping[str, str]

    def serve_deploy(self, config: Mapping[str, Any]) -> None:
        """What ``serve deploy FILE`` does."""
        file = self.folder / "serve.yaml"
        file.write_text(yaml.safe_dump(dict(config)), "utf-8")
        command = [_PROGRAMS / "serve", "deploy", file, "-a", self.dashboard]
        subprocess.run(
            command, check=True, cwd=ROOT, env=_environment(self.variables), stdout=subprocess.DEVNULL, timeout=60
        )

    def put(self, config: Mapping[str, Any]) -> None:
        """What KubeRay's operator does with ``serveConfigV2``."""
        self._asked("PUT", dict(config))

    def application(self, name: str) -> dict[str, Any]:
        """What ``serve status`` and KubeRay's operator see of an application."""
        found: dict[str, Any] = self._asked("GET").json()["applications"].get(name, {})
        return found

    def eventually(self, holds: Callable[[], Any], within_s: float = 60) -> Any:
        """What ``holds`` gives as soon as that is true."""
        give_up = time.monotonic() + within_s
        while time.monotonic() < give_up:
            with suppress(httpx.TransportError):
                if found := holds():
                    return found
            time.sleep(0.1)
        raise AssertionError(f"not within {within_s:g} s; the node's log: {(self.folder / 'log').read_text()[-2000:]}")

    def _asked(self, method: str, config: dict[str, Any] | None = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.variables['RAY_AUTH_TOKEN']}"}
        url = f"{self.dashboard}/api/serve/applications/"
        answer = httpx.request(method, url, json=config, headers=headers, timeout=30, trust_env=False)
        return answer.raise_for_status()


@contextmanager
def ray_node(variables: Mapping[str, str], *options: str) -> Iterator[RayNode]:
    """One node whose ``ray start`` has ``variables`` in its environment, with a token that Ray asks for, as KubeRay has
    it; it is gone with the block."""
    variables = {**variables, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    folder = Path(tempfile.mkdtemp(prefix="limner-ray-"))  # not pytest's: names of sockets may be 107 bytes long
    dashboard, agent = free_port(), free_port()
    command = [_PROGRAMS / "ray", "start", "--head", "--block", "--disable-usage-stats", f"--temp-dir={folder}"]
    command += ["--node-ip-address=127.0.0.1", f"--port={free_port()}", f"--ray-client-server-port={free_port()}"]
    command += ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options], cwd=ROOT, env=_environment(variables), stdout=log, stderr=subprocess.STDOUT
        )
    node = RayNode(f"http://127.0.0.1:{dashboard}", f"http://127.0.0.1:{agent}", folder, variables)
    try:
        node.eventually(
            lambda: httpx.get(f"{node.dashboard}/api/gcs_healthz", trust_env=False).is_success, _READY_WITHIN_S
        )
        yield node
    finally:
        _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RAY_COLOR_PREFIX": "0", **variables}


def _end(process: subprocess.Popen[bytes]) -> None:
    """The node and all its processes, replicas too: nobody needs what they hold."""
    with suppress(psutil.NoSuchProcess):
        node = psutil.Process(process.pid)
        node.suspend()  # it would start anew what it misses
        everyone = node.children(recursive=True)
        for each in [node, *everyone]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(everyone, timeout=20)
    process.wait(20)
