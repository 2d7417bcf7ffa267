"""The ledger's disk is full or fails, its database is killed: captions go on, and nothing acknowledged is lost."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event, select

from models.errors import OverloadedError
from serving.api import build_api
from serving.args import AppArgs
from serving.engine import Engine
from serving.experiments.database import open_database
from serving.experiments.ledger import Ledger, open_ledger
from serving.experiments.outcomes import OutcomeSender
from serving.experiments.records import Outcome, Vote, outcome_id
from serving.experiments.tables import OUTCOMES, VOTES
from serving.metrics import REPORTS_LOST
from serving.model_pool import LoadedModel
from serving.reports import Reporter
from serving.served_models import ServedModels
from serving.services import Services
from tests.disks import failing_disk, small_disk
from tests.figures import Figures
from tests.postgres import postgres
from tests.serving.experiments.support import LocalLedger, experiment
from tests.serving.support import GatedPipeline, LocalBackend, b64, client_of, png
from tests.support import needs_mount, needs_postgres

ARGS = AppArgs(models=("fake",), experiments=(experiment(),))
REFUSED = 2
"""Votes that are seen to be refused."""


class PatientLedger(LocalLedger):
    """Writes in threads, as the deployment does, and gives up on what hangs."""

    async def record(self, outcomes: Sequence[Outcome]) -> Collection[str]:
        return await _in_time(asyncio.to_thread(self.ledger.record, outcomes))

    async def vote(self, vote: Vote) -> None:
        await _in_time(asyncio.to_thread(self.ledger.vote, vote))


async def _in_time(work: Awaitable[Any]) -> Any:
    try:
        return await asyncio.wait_for(work, 5)
    except TimeoutError as error:
        raise OverloadedError("unavailable", "the ledger is silent") from error


@asynccontextmanager
async def application(ledger: Ledger) -> AsyncIterator[tuple[httpx.AsyncClient, OutcomeSender]]:
    """The whole application but for Ray, with the ledger."""
    reporter, lost = Reporter("test", REPORTS_LOST), Counter[str]()
    engine = Engine({"fake": LoadedModel(GatedPipeline())}, ARGS, reporter)
    patient = PatientLedger(ledger)
    sender = OutcomeSender(patient.record, lambda number: lost.update(n=number), interval_s=0.05)
    services = Services(ARGS, ServedModels.from_args(ARGS), LocalBackend(engine, reporter), reporter, patient, sender)
    sending = asyncio.create_task(sender.run())
    try:
        async with client_of(build_api(services)) as client:
            yield client, sender
        await sender.close(timeout_s=10)
        assert not lost
    finally:
        sending.cancel()
        engine.close()


class Visitor:
    """Asks for a caption in an experiment and votes on it, again and again."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.captioned: set[str] = set()
        self.votes: dict[str, int] = {}
        """Those answered 2xx, by outcome."""
        self.seen: Counter[tuple[str, int]] = Counter()
        self.slowest_s = 0.0

    async def visit(self) -> int:
        """The status of the vote; a caption is had whatever happens to the ledger."""
        number = len(self.captioned)
        asked = {"images": [{"base64": b64(png((number % 256, 9, 9)))}], "experiment": "tone", "unit": f"u{number}"}
        began = time.perf_counter()
        answer = await self._client.post("/v1/captions", json=asked)
        self.slowest_s = max(self.slowest_s, time.perf_counter() - began)
        self.seen["caption", answer.status_code] += 1
        assert answer.status_code == 200, answer.text
        got = answer.json()
        about = outcome_id("tone", got["id"], 0)
        self.captioned.add(about)
        value = 1 if number % 3 else -1
        vote = {"request_id": got["id"], "index": 0, "arm": got["results"][0]["experiment"]["arm"], "value": value}
        answer = await self._client.post("/v1/experiments/tone/votes", json=vote)
        self.seen["vote", answer.status_code] += 1
        if answer.status_code == 200:
            self.votes[about] = value
        else:
            assert answer.status_code == 503, answer.text
            assert (answer.json()["code"], answer.headers["retry-after"]) == ("unavailable", "5")
        return answer.status_code

    async def until(self, status: int, times: int = 1, within_s: float = 60) -> None:
        """Visit until that many votes had this status."""
        wanted = self.seen["vote", status] + times
        async with asyncio.timeout(within_s):
            while self.seen["vote", status] < wanted:
                await self.visit()


def kept(url: str) -> tuple[set[str], dict[str, int]]:
    """The outcomes and votes that a ledger holds, read anew from its database."""
    with open_database(url) as engine, engine.begin() as connection:
        outcomes = set(connection.execute(select(OUTCOMES.c.id)).scalars())
        votes = connection.execute(select(VOTES.c.outcome_id, VOTES.c.value))
        return outcomes, {row.outcome_id: row.value for row in votes}


def through_a_fault(
    url: str, fail: Callable[[Ledger], None], heal: Callable[[], None] | None, figure: Figures
) -> Visitor:
    """Votes before, during and after (where it heals) a fault of the ledger; what was acknowledged is there."""

    async def scenario() -> Visitor:
        with open_ledger(url) as ledger:
            async with application(ledger) as (client, sender):
                visitor = Visitor(client)
                await visitor.until(200, 10)
                await asyncio.to_thread(fail, ledger)
                await visitor.until(503, REFUSED)
                if heal is None:
                    sender._pending.clear()  # they can never be sent
                    return visitor
                await asyncio.to_thread(heal)
                healed = time.perf_counter()
                await visitor.until(200, 1)
                figure("votes again", f"{time.perf_counter() - healed:.1f} s after the fault ended")
                await visitor.until(200, 10)
        outcomes, _ = kept(url)
        assert outcomes == visitor.captioned  # what could not be recorded during the fault was sent again
        return visitor

    visitor = asyncio.run(scenario())
    figure("statuses", f"{dict(visitor.seen)}, slowest caption {visitor.slowest_s:.2f} s")
    return visitor


def check_votes(url: str, visitor: Visitor) -> None:
    _, votes = kept(url)
    assert visitor.votes.items() <= votes.items()


class Limit:
    """Makes a ledger's SQLite refuse to write, as a full or read-only disk does."""

    def __init__(self, pragma: str, normal: str) -> None:
        self._pragma = pragma
        self._normal = normal
        self._on = threading.Event()

    def fail(self, ledger: Ledger) -> None:
        event.listen(ledger._engine, "checkout", self._set)
        self._on.set()

    def heal(self) -> None:
        self._on.clear()

    def _set(self, connection: Any, *_others: object) -> None:
        connection.execute(f"PRAGMA {self._pragma if self._on.is_set() else self._normal}").fetchall()


@pytest.mark.parametrize(
    ("pragma", "normal"),
    [
        pytest.param("max_page_count=1", "max_page_count=1000000", id="full"),
        pytest.param("query_only=1", "query_only=0", id="read-only"),
    ],
)
def test_a_database_that_cannot_be_written(tmp_path: Path, figure: Figures, pragma: str, normal: str) -> None:
    url, limit = f"sqlite:///{tmp_path}/ledger.db", Limit(pragma, normal)
    check_votes(url, through_a_fault(url, limit.fail, limit.heal, figure))


@needs_mount
def test_a_full_disk(tmp_path: Path, figure: Figures) -> None:
    with small_disk(tmp_path / "disk") as disk:
        url = f"sqlite:///{disk.folder}/ledger.db"
        check_votes(url, through_a_fault(url, lambda _ledger: disk.fill(), disk.empty, figure))


@needs_mount
def test_a_disk_that_turns_read_only(tmp_path: Path, figure: Figures) -> None:
    with failing_disk(tmp_path / "disk") as disk:
        url = f"sqlite:///{disk.folder}/ledger.db"
        visitor = through_a_fault(url, lambda _ledger: disk.fail(), None, figure)
        disk.repair()
        check_votes(url, visitor)


@needs_postgres
def test_postgresql_killed(figure: Figures) -> None:
    with postgres() as server:
        url = server.url.format("postgres")
        check_votes(url, through_a_fault(url, lambda _ledger: server.kill(), server.start, figure))
