"""Thousands of requests of every kind, good, bad and given up: right answers only, and nothing that grows."""

import asyncio
import socket
import threading
import time
from collections import Counter

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from serving.api import build_api
from serving.args import AppArgs, Limits
from serving.engine import Engine
from serving.metrics import REPORTS_LOST
from serving.model_pool import load_models
from serving.reports import Reporter
from serving.served_models import ServedModels
from serving.services import Services
from tests.figures import Figures
from tests.serving.conftest import served_models
from tests.serving.processes import APPLICATION, RAYS, Held, growth, held, processes
from tests.serving.support import LocalBackend, await_metric
from tests.serving.traffic import Traffic, kinds

AT_ONCE = 12
WINDOWS = 24
MOST_GROWTH = 0.05
PEAKS = ("3 MB", "left at once", "left in the queue", "left in the pass", "several", "fallback", "mix", "vote")
"""Kinds that take much memory for a moment, the more the more of them meet. They all meet before anything is measured:
an allocator keeps some of what it once had, and a high mark that is reached late would look like a leak."""
ROOM = 5
"""Threads and descriptors that a process may come to hold later than others: pools fill when they first need to."""
QUIET_WITHIN_S = 60


def run(server: str, traffic: Traffic, visits: int) -> None:
    asyncio.run(traffic.run(server, visits, AT_ONCE))


@pytest.mark.parametrize(
    ("warm_up", "visits"),
    [pytest.param(600, 1500, id="2000"), pytest.param(2500, 17500, id="20000", marks=pytest.mark.slow)],
)
def test_mixed_requests_leave_nothing_behind(
    server: str, client: httpx.Client, figure: Figures, warm_up: int, visits: int
) -> None:
    await_metric(client, "limner_scorer_up", lambda value: value == 1)
    client.close()  # a connection that it keeps would be counted
    traffic = Traffic(kinds(served_models(), experiment="load"), seed=warm_up)
    asyncio.run(traffic.each(server))
    run(server, traffic.only(PEAKS), 4 * len(PEAKS) * AT_ONCE)
    run(server, traffic, warm_up)
    application, rays = processes(), processes(RAYS)
    assert set(application) == set(APPLICATION)
    before = quiet(server)
    windows, began = [], time.perf_counter()
    for _ in range(WINDOWS):
        run(server, traffic, visits // WINDOWS)
        windows.append(held({**application, **rays}))
    took_s = time.perf_counter() - began
    after = quiet(server, before)
    tell(figure, traffic, windows, before, after, visits / took_s)
    assert not traffic.wrong, Counter(traffic.wrong)
    assert not more_than(before, after)
    for name in application:
        assert growth([window[name].memory_mib for window in windows]) < MOST_GROWTH, (name, memory(windows, name))


def quiet(server: str, before: dict[str, Held] | None = None) -> dict[str, Held]:
    """What the application holds once nothing is under way; given time to hold no more than before."""
    with httpx.Client(base_url=server, timeout=60, trust_env=False) as client:
        await_metric(client, "limner_queue_images", lambda value: value == 0)
    found = processes()
    give_up = time.monotonic() + QUIET_WITHIN_S
    while more_than(before or {}, now := held(found)) and time.monotonic() < give_up:
        time.sleep(0.2)
    return now


def more_than(before: dict[str, Held], now: dict[str, Held]) -> dict[str, tuple[Held, Held]]:
    return {
        name: (was, now[name])
        for name, was in before.items()
        if now[name].descriptors > was.descriptors + ROOM or now[name].threads > was.threads + ROOM
    }


def memory(windows: list[dict[str, Held]], name: str) -> list[float]:
    return [round(window[name].memory_mib, 1) for window in windows]


def tell(
    figure: Figures,
    traffic: Traffic,
    windows: list[dict[str, Held]],
    before: dict[str, Held],
    after: dict[str, Held],
    per_s: float,
) -> None:
    statuses = Counter[int]()
    for (_, status), times in traffic.seen.items():
        statuses[status] += times
    figure("visits", f"{sum(statuses.values())}, {per_s:.0f}/s; by status {dict(sorted(statuses.items()))} (0: left)")
    for name in windows[0]:
        values = memory(windows, name)
        now, was = after.get(name), before.get(name)
        others = (
            f", descriptors {was.descriptors} -> {now.descriptors}, threads {was.threads} -> {now.threads}"
            if now and was
            else ""
        )
        figure(name, f"{values[0]} -> {values[-1]} MiB, growth {100 * growth(values):+.2f} %{others}")


def test_no_task_and_no_thread_is_left(scorer: str, figure: Figures) -> None:
    """The same requests to the application in this process, where its tasks can be counted."""
    args = AppArgs(models=("fake",), scorer=scorer, device="cpu", limits=Limits(body_timeout_s=1))

    async def scenario() -> None:
        engine = Engine(load_models(args), args, Reporter("test", REPORTS_LOST))
        listener = socket.create_server(("127.0.0.1", 0))
        web = uvicorn.Server(uvicorn.Config(_app(args, engine), log_level="critical", ws="none", lifespan="off"))
        serving = asyncio.create_task(web.serve([listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            traffic = Traffic(kinds(args.models), seed=1)
            await traffic.run(url, 150, AT_ONCE)
            tasks, threads = await _settled(), threading.active_count()
            await traffic.each(url)
            await traffic.run(url, 300, AT_ONCE)
            assert not traffic.wrong, Counter(traffic.wrong)
            left = await _settled(tasks)
            assert left <= tasks, [task.get_coro() for task in asyncio.all_tasks()]
            assert threading.active_count() <= threads + ROOM
            figure("tasks", f"{tasks} before, {left} after {sum(traffic.seen.values())} visits")
        finally:
            web.should_exit = True
            await serving
            engine.close()

    asyncio.run(scenario())


async def _settled(at_most: int = 0, within_s: float = 10) -> int:
    """Tasks once there are no more than that, or they no longer get fewer."""
    give_up = asyncio.get_running_loop().time() + within_s
    while (now := len(asyncio.all_tasks())) > max(at_most, 3) and asyncio.get_running_loop().time() < give_up:
        await asyncio.sleep(0.05)
    return now


def _app(args: AppArgs, engine: Engine) -> FastAPI:
    reporter = Reporter("test", REPORTS_LOST)
    return build_api(Services(args, ServedModels.from_args(args), LocalBackend(engine, reporter), reporter))
