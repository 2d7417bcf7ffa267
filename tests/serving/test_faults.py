"""Processes of the running application are killed under load: what clients see, how soon it ends, what is lost."""

import asyncio
import random
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest

from benchmarks.serving import LIMNER, running
from models.cpus import usable_cores
from serving.experiments.records import outcome_id
from tests.figures import Figures
from tests.serving.conftest import free_port
from tests.serving.processes import APPLICATION, processes, replicas
from tests.serving.support import await_metric, b64, pictures
from tests.serving.wire import Reply, Request, ask

VISITORS = 4
BEFORE_S = 1.0
AFTER_S = 1.5
BACK_WITHIN_S = 120
CAPTION, VOTE, METRICS = "caption", "vote", "metrics"
KINDS = (CAPTION, VOTE, METRICS)
NO_ANSWER = 0

SEEN: dict[str, dict[str, set[int]]] = {
    "Scorer": {},
    "Monitor": {METRICS: {503}},
    "Ledger": {VOTE: {503}},
    "Captioner": {CAPTION: {503}, VOTE: set()},
    "Ingress": {kind: {NO_ANSWER, 503} for kind in KINDS},
}
"""What clients may see beside 200 when a process is killed, by kind of request."""


@dataclass
class Log:
    """What visitors saw, by the clock of ``time.monotonic``."""

    seen: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    slowest_s: Counter[str] = field(default_factory=Counter)
    captioned: set[str] = field(default_factory=set)
    votes: dict[str, int] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    """Refusals that are not as they should be."""

    def add(self, kind: str, reply: Reply | None) -> None:
        status = reply.status if reply is not None else NO_ANSWER
        self.seen[kind].append((time.monotonic(), status))
        if reply is None:
            return
        if reply.took_s > self.slowest_s[kind]:
            self.slowest_s[kind] = reply.took_s  # type: ignore[assignment]
        if status == 503 and reply.headers.get("content-type") == "application/problem+json":
            good = reply.json()["code"] == "unavailable" and reply.headers.get("retry-after") == "5"
            if not good:
                self.odd.append(f"{kind}: {reply}")

    def failed(self, kind: str, since: float) -> list[tuple[float, int]]:
        return [(at, status) for at, status in self.seen[kind] if at >= since and status != 200]

    def answered(self, kind: str, since: float) -> bool:
        return any(at >= since and status == 200 for at, status in self.seen[kind])


async def _ask(url: str, request: Request) -> Reply | None:
    with suppress(OSError):
        return await ask(url, request)
    return None


async def visit(url: str, log: Log, chance: random.Random) -> None:
    """Captions in an experiment, one after the other, and a vote on each."""
    while True:
        asked = {"images": [{"base64": b64(chance.choice(pictures(8)))}], "model": "fake"}
        unit = {"experiment": "load", "unit": f"u{chance.randrange(50)}"}
        reply = await _ask(url, Request.of_json("/v1/captions", {**asked, **unit}))
        log.add(CAPTION, reply)
        if reply is None or reply.status != 200:
            await asyncio.sleep(0.1)
            continue
        got = reply.json()
        about, value = outcome_id("load", got["id"], 0), chance.choice((1, -1))
        log.captioned.add(about)
        vote = {"request_id": got["id"], "index": 0, "arm": got["results"][0]["experiment"]["arm"], "value": value}
        reply = await _ask(url, Request.of_json("/v1/experiments/load/votes", vote))
        log.add(VOTE, reply)
        if reply is not None and reply.status == 200:
            log.votes[about] = value


async def watch(url: str, log: Log) -> None:
    """Reads the metrics, as Prometheus does."""
    while True:
        log.add(METRICS, await _ask(url, Request("/metrics", method="GET")))
        await asyncio.sleep(0.2)


async def under_load(url: str, log: Log, scenario: Callable[[], Awaitable[None]]) -> None:
    chances = [random.Random(number) for number in range(VISITORS)]
    load = [asyncio.create_task(visit(url, log, chance)) for chance in chances]
    load.append(asyncio.create_task(watch(url, log)))
    try:
        await scenario()
        failed = [task for task in load if task.done()]
        assert not failed, failed
    finally:
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)


async def until(fits: Callable[[], bool], within_s: float = BACK_WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while not await asyncio.to_thread(fits):
            await asyncio.sleep(0.1)


def kill(server: str, victims: Sequence[str]) -> tuple[Log, float, float]:
    """Kill processes under load; what was seen, when it was, and the seconds until there were others."""
    log, killed_at, back_s = Log(), 0.0, 0.0

    async def scenario() -> None:
        nonlocal killed_at, back_s
        await asyncio.sleep(BEFORE_S)
        old = processes(victims)
        for process in old.values():
            process.kill()
        killed_at = time.monotonic()
        await until(lambda: all(processes(victims).get(name, was).pid != was.pid for name, was in old.items()))
        back_s = time.monotonic() - killed_at

        def as_before() -> bool:
            """For a while nothing failed, and something of every kind came."""
            since = time.monotonic() - AFTER_S
            return since > killed_at and all(
                log.answered(kind, since) and not log.failed(kind, since) for kind in KINDS
            )

        await until(as_before)

    asyncio.run(under_load(server, log, scenario))
    return log, killed_at, back_s


def in_ledger(file: Path) -> tuple[set[str], dict[str, int]]:
    """Outcomes and votes, read from the file beside the process that owns it."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        outcomes = {row[0] for row in database.execute("SELECT id FROM limner_outcomes WHERE experiment = 'load'")}
        votes = dict(database.execute("SELECT outcome_id, value FROM limner_votes").fetchall())
        return outcomes, votes


BEHIND = ("Scorer", "Monitor", "Ledger", "Captioner")
"""The ingress: it goes on without them."""

VICTIMS = [
    pytest.param(BEHIND, id="all behind the ingress"),
    *(pytest.param((name,), id=name, marks=pytest.mark.slow) for name in (*BEHIND, "Ingress")),
]


@pytest.mark.parametrize("victims", VICTIMS)
def test_killed(server: str, client: httpx.Client, ledger_file: Path, figure: Figures, victims: Sequence[str]) -> None:
    await_metric(client, "limner_scorer_up", lambda value: value == 1)
    log, killed_at, back_s = kill(server, victims)
    figure("another process", f"after {back_s:.1f} s")
    for kind in KINDS:
        failed = log.failed(kind, killed_at)
        until_s = max((at - killed_at for at, _ in failed), default=0.0)
        statuses = dict(Counter(status for _, status in failed))
        what = f"{statuses}, the last after {until_s:.1f} s" if failed else "all 200"
        figure(kind, f"{what}; {len(log.seen[kind])} in all, slowest {log.slowest_s[kind]:.1f} s")
        allowed = {status for victim in victims for status in SEEN[victim].get(kind, ())}
        assert set(statuses) <= allowed, (kind, statuses)
        assert not [status for at, status in log.seen[kind] if at < killed_at and status != 200]
    assert not log.odd
    if "Scorer" in victims:
        await_metric(client, "limner_scorer_up", lambda value: value == 1)
        figure("scores again", f"within {time.monotonic() - killed_at:.1f} s")

    def lost() -> tuple[int, int]:
        outcomes, votes = in_ledger(ledger_file)
        return len(log.captioned - outcomes), len(log.votes.items() - votes.items())

    give_up = time.monotonic() + 30
    while (now := lost()) != (0, 0) and "Ingress" not in victims and time.monotonic() < give_up:
        time.sleep(0.2)
    figure("lost", f"{now[0]} of {len(log.captioned)} outcomes, {now[1]} of {len(log.votes)} acknowledged votes")
    figure("all recorded", f"within {time.monotonic() - killed_at:.1f} s")
    assert now[1] == 0
    assert now[0] == 0 or "Ingress" in victims  # those of its last second die with it
    assert set(processes()) == set(APPLICATION)


@pytest.mark.slow
@pytest.mark.skipif(usable_cores() < 2, reason="two captioners need two cores")
def test_one_of_two_captioners_is_killed(figure: Figures) -> None:
    """The other one answers, also what was with the one that died."""
    others = replicas("Captioner")
    port = free_port()
    command = [sys.executable, "-c", LIMNER, "serve", "--port", str(port), "--model", "concise", "--captioners", "2"]
    log = Log()

    def ours() -> list[psutil.Process]:
        return [process for pid, process in replicas("Captioner").items() if pid not in others]

    async def ask_on(url: str) -> None:
        while True:
            asked = Request.of_json("/v1/captions", {"images": [{"base64": b64(picture)} for picture in pictures(4)]})
            log.add(CAPTION, await _ask(url, asked))

    async def scenario(url: str) -> None:
        load = [asyncio.create_task(ask_on(url)) for _ in range(VISITORS)]
        await asyncio.sleep(BEFORE_S)
        victim, killed_at = ours()[0], time.monotonic()
        victim.kill()
        await until(lambda: victim.pid not in replicas("Captioner") and len(ours()) == 2)
        await until(lambda: log.answered(CAPTION, time.monotonic() - AFTER_S))
        figure("another process", f"after {time.monotonic() - killed_at:.1f} s")
        failed = [task for task in load if task.done()]
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
        assert not failed, failed

    with running("limner", command, f"http://127.0.0.1:{port}") as url:
        asyncio.run(scenario(url))
    figure(CAPTION, f"all of {len(log.seen[CAPTION])} answered, slowest {log.slowest_s[CAPTION]:.1f} s")
    assert not log.failed(CAPTION, 0)
