"""Definitions, results and votes over HTTP, with a real ledger in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from serving.api import build_api
from serving.args import AppArgs
from serving.experiments.ledger import open_ledger
from serving.experiments.outcomes import OutcomeSender
from serving.metrics import REPORTS_LOST
from serving.reports import Reporter
from serving.routes import experiments
from serving.served_models import ServedModels
from serving.services import Backend, Services
from tests.serving.experiments.support import LocalLedger, experiment, outcome
from tests.serving.support import client_of

NOT_ASKED = SimpleNamespace(refusal=lambda: None)
"""A backend that has no room to refuse and nothing to answer with."""
ARGS = AppArgs(models=("fake",), experiments=(experiment(), experiment("x", "y", name="other")))
VOTE = {"request_id": "r1", "index": 0, "arm": "a", "value": 1}
JSON = {"content-type": "application/json"}

Scenario = Callable[[httpx.AsyncClient, LocalLedger, OutcomeSender], Awaitable[None]]


@asynccontextmanager
async def application(folder: Path) -> AsyncIterator[tuple[httpx.AsyncClient, LocalLedger, OutcomeSender]]:
    with open_ledger(f"sqlite:///{folder}/ledger.db") as opened:
        ledger = LocalLedger(opened)
        sender = OutcomeSender(ledger.record, lambda lost: None)
        models, reporter = ServedModels.from_args(ARGS), Reporter("test", REPORTS_LOST)
        services = Services(ARGS, models, cast(Backend, NOT_ASKED), reporter, ledger, sender)
        async with client_of(build_api(services)) as client:
            yield client, ledger, sender


def play(folder: Path, scenario: Scenario) -> None:
    async def played() -> None:
        async with application(folder) as parts:
            await scenario(*parts)

    asyncio.run(played())


def test_the_definitions(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, ledger: LocalLedger, sender: OutcomeSender) -> None:
        listed = (await client.get("/v1/experiments")).json()
        assert [each["name"] for each in listed["data"]] == ["tone", "other"]
        assert [arm["label"] for arm in listed["data"][1]["arms"]] == ["x", "y"]

    play(tmp_path, scenario)


def test_results(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, ledger: LocalLedger, sender: OutcomeSender) -> None:
        for arm, shift in (("a", 0.0), ("b", 0.2)):
            ledger.ledger.record(
                [
                    outcome(
                        arm=arm, unit=f"{arm}{unit}", request_id=f"{arm}{unit}", clip_score=0.5 + shift + unit % 7 / 100
                    )
                    for unit in range(140)
                ]
            )
        answer = (await client.get("/v1/experiments/tone")).json()
        a, b = answer["results"]["arms"]
        assert (a["label"], a["units"], a["images"], b["clip_score"]) == ("a", 140, 140, pytest.approx(0.73))
        [pair] = answer["results"]["pairs"]
        assert (pair["a"], pair["b"], pair["verdict"]) == ("a", "b", "b better")
        low, high = pair["confidence_sequence"]
        assert pair["effect"] == pytest.approx(-0.2)
        assert low < pair["effect"] < high < 0
        assert answer["experiment"]["name"] == "tone"
        other = (await client.get("/v1/experiments/other")).json()
        assert [arm["images"] for arm in other["results"]["arms"]] == [0, 0]

    play(tmp_path, scenario)


def test_votes(tmp_path: Path) -> None:
    async def scenario(client: httpx.AsyncClient, ledger: LocalLedger, sender: OutcomeSender) -> None:
        sender.add([outcome()])  # not sent yet: who votes so soon is no stranger
        for value in (1, -1):
            answer = await client.post("/v1/experiments/tone/votes", json={**VOTE, "value": value})
            assert (answer.status_code, answer.json()) == (200, {"status": "recorded"})
        a, b = (await client.get("/v1/experiments/tone")).json()["results"]["arms"]
        assert (a["votes_up"], a["votes_down"], b["votes_up"], b["votes_down"]) == (0, 1, 0, 0)

    play(tmp_path, scenario)


def test_a_vote_that_comes_before_another_ingress_has_told_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: httpx.AsyncClient, ledger: LocalLedger, sender: OutcomeSender) -> None:
        async def meanwhile(_seconds: float) -> None:
            ledger.ledger.record([outcome()])

        monkeypatch.setattr(experiments.asyncio, "sleep", meanwhile)
        assert (await client.post("/v1/experiments/tone/votes", json=VOTE)).status_code == 200

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ({"arm": "b"}, "unknown_vote_target", "no caption of arm 'b'"),
        ({"request_id": "r2"}, "unknown_vote_target", "'r2', index 0"),
        ({"value": 0}, "invalid_request", "value: Input should be 1 or -1"),
        ({"value": True}, "invalid_request", "value: "),
        ({"value": None}, "invalid_request", "value: "),
        ({"index": -1}, "invalid_request", "index: "),
        ({"index": 100_000}, "invalid_request", "index: "),
        ({"request_id": "a\0b"}, "invalid_request", "request_id: "),
        ({"arm": "\ud800"}, "invalid_request", ""),
        ({"colour": "red"}, "invalid_request", "colour: "),
    ],
)
def test_votes_that_cannot_be(
    tmp_path: Path, change: dict[str, Any], code: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "_UNCONFIRMED_S", 0)

    async def scenario(client: httpx.AsyncClient, ledger: LocalLedger, sender: OutcomeSender) -> None:
        ledger.ledger.record([outcome()])
        answer = await client.post("/v1/experiments/tone/votes", content=json.dumps({**VOTE, **change}), headers=JSON)
        assert answer.status_code == {"unknown_vote_target": 404, "invalid_request": 422}[code]
        assert answer.json()["code"] == code
        assert told in answer.json()["detail"]

    play(tmp_path, scenario)


@pytest.mark.parametrize("path", ["/v1/experiments/absent", "/v1/experiments/absent/votes"])
def test_experiments_that_do_not_run(tmp_path: Path, path: str) -> None:
    async def scenario(client: httpx.AsyncClient, ledger: LocalLedger, sender: OutcomeSender) -> None:
        answer = await (client.post(path, json=VOTE) if path.endswith("votes") else client.get(path))
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_experiment")
        assert "there are: tone, other" in answer.json()["detail"]

    play(tmp_path, scenario)


def test_a_server_without_experiments() -> None:
    async def scenario() -> None:
        args = AppArgs(models=("fake",))
        models, reporter = ServedModels.from_args(args), Reporter("test", REPORTS_LOST)
        services = Services(args, models, cast(Backend, NOT_ASKED), reporter)
        async with client_of(build_api(services)) as client:
            assert (await client.get("/v1/experiments")).json() == {"object": "list", "data": []}
            assert (await client.get("/v1/experiments/tone")).json()["code"] == "unknown_experiment"

    asyncio.run(scenario())
