"""What the processes load: the HTTP layer no torch, and Ray only where deployments are."""

import ast
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from models.errors import OverloadedError, UnknownNameError
from serving.ingress import RayBackend
from serving.messages import ScoreJob, ScoreReply
from serving.replicas import call_replica
from tests.serving.support import await_metric

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("serving.app", {"torch"}),
        ("serving.api", {"torch", "ray"}),
        ("serving.cli", {"torch", "ray", "fastapi"}),
    ],
)
def test_imports(module: str, absent: set[str]) -> None:
    check = f"import sys, {module}; sys.exit(bool({absent!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT).returncode == 0


def test_ray_is_imported_by_the_deployments_and_what_starts_them_alone() -> None:
    def imports_ray(path: Path) -> bool:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
        names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        return any(name.partition(".")[0] == "ray" for name in names)

    found = {path.stem for path in (ROOT / "serving").rglob("*.py") if imports_ray(path)}
    deployments = {"app", "captioner", "ingress", "ledger_deployment", "monitor", "registry_deployment", "scorer"}
    assert found == {*deployments, "autoscaling", "local", "ray_data", "replicas"}


def test_of_the_running_application_only_captioner_and_scorer_have_loaded_torch(client: httpx.Client) -> None:
    await_metric(client, "limner_scorer_up", lambda value: value == 1)
    replicas = [
        process
        for process in psutil.Process().children(recursive=True)
        if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::ServeReplica")
    ]
    loaded = {
        process.cmdline()[0].rpartition(":")[2].partition(".")[0]: any(
            "libtorch" in area.path for area in process.memory_maps()
        )
        for process in replicas
    }
    light = dict.fromkeys(("Ingress", "Ledger", "Monitor", "Registry"), False)
    assert loaded == {"Captioner": True, "Scorer": True, **light}


class Handle:
    """What the backend uses of a Serve handle: ``handle.method.remote(...)``; every method answers alike."""

    def __init__(self, answer: Callable[..., Awaitable[Any]]) -> None:
        self._answer = answer

    def __getattr__(self, _method: str) -> "Handle":
        return self

    def remote(self, *arguments: object) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self._answer(*arguments))


async def _silent(*_arguments: object) -> None:
    await asyncio.sleep(60)


def backend(captioner: Callable[..., Awaitable[Any]], monitor: Callable[..., Awaitable[Any]] = _silent) -> RayBackend:
    return RayBackend(Handle(captioner), Handle(monitor), ("fake",), deadline_s=1)  # type: ignore[arg-type]


JOB = ScoreJob("r", "fake", (b"x",), (("a",),))


def test_a_silent_monitor_or_captioner_is_told_within_a_second() -> None:
    started = time.monotonic()
    with pytest.raises(OverloadedError) as caught:
        asyncio.run(backend(_silent).metrics())
    assert caught.value.code == "unavailable"
    assert asyncio.run(backend(_silent).ready()) is False
    with pytest.raises(OverloadedError, match="not ready yet"):
        asyncio.run(backend(_silent).score(JOB))
    assert time.monotonic() - started < 10  # three waits of a second; what is silent is so for 60 s


def test_a_call_that_nobody_waits_for_is_cancelled_on_the_replica() -> None:
    async def scenario() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def work(*_arguments: object) -> None:
            if begun.is_set():
                return
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        asking = asyncio.create_task(call_replica(Handle(work), "caption", timeout_s=60))  # type: ignore[arg-type]
        await begun.wait()
        asking.cancel()
        await ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(scenario())


def test_an_error_that_the_captioner_returns_is_raised() -> None:
    async def refuse(*_arguments: object) -> Any:
        return UnknownNameError("unknown_name", "no")

    with pytest.raises(UnknownNameError):
        asyncio.run(backend(refuse).score(JOB))


def test_a_reply_is_passed_on() -> None:
    async def reply(*_arguments: object) -> Any:
        return ScoreReply(())

    assert asyncio.run(backend(reply).score(JOB)) == ScoreReply(())
