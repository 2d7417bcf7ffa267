"""The ledger as a deployment of its own: killed and shut down, it forgets nothing."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import psutil
import pytest
from ray import serve

from models.errors import OverloadedError, UnknownNameError
from serving.experiments.records import Vote
from serving.ledger_deployment import RayLedger
from tests.serving.experiments.support import outcome


@pytest.fixture
def ledger(server: str) -> Iterator[RayLedger]:
    yield RayLedger(serve.get_deployment_handle("Ledger", "limner"))


async def _patiently(ledger: RayLedger, method: str, *arguments: Any) -> Any:
    """The answer of a replica that may be on its way back."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        with suppress(OverloadedError):
            return await getattr(ledger, method)(*arguments)
        await asyncio.sleep(0.2)
    raise AssertionError(f"{method} found no ledger for a minute")


def test_errors_arrive_as_they_are(ledger: RayLedger) -> None:
    async def scenario() -> None:
        with pytest.raises(UnknownNameError, match="'never', index 0"):
            await ledger.vote(Vote("tone", "a", "never", 0, 1, 0.0))

    asyncio.run(scenario())


def test_a_killed_ledger_comes_back_with_all_that_it_confirmed(ledger: RayLedger, client: httpx.Client) -> None:
    async def scenario() -> None:
        made = [outcome(experiment="kept", request_id=f"k{number}") for number in range(30)]
        assert await ledger.record(made) == {each.id for each in made}
        await ledger.vote(Vote("kept", "a", "k3", 0, 1, 0.0))
        [process] = [
            each for each in psutil.Process().children(recursive=True) if "ServeReplica:limner:Ledger" in each.name()
        ]
        process.kill()
        process.wait(30)
        assert await _patiently(ledger, "record", made) == {each.id for each in made}  # sent again: none is doubled

    asyncio.run(scenario())
    a, b = client.get("/v1/experiments/kept").json()["results"]["arms"]
    assert (a["images"], a["votes_up"], b["images"]) == (30, 1, 0)
    vote = {"request_id": "k4", "index": 0, "arm": "a", "value": -1}
    assert client.post("/v1/experiments/kept/votes", json=vote).status_code == 200
    assert client.get("/v1/experiments/kept").json()["results"]["arms"][0]["votes_down"] == 1
