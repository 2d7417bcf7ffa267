"""A server without room for one image more: whoever asks is refused at once, each in the format of the route."""

import asyncio
from pathlib import Path
from typing import cast

from fastapi import FastAPI

from models.errors import OverloadedError
from serving.api import build_api
from serving.api_keys import ApiKeys, read_api_keys
from serving.args import AppArgs, KeyArgs
from serving.metrics import REPORTS_LOST, Metrics
from serving.middleware.edge_guard import EdgeGuard
from serving.middleware.full_house import CAPTIONER_ROUTES
from serving.reports import Reporter
from serving.served_models import ServedModels
from serving.services import Backend, Services
from tests.serving.raw_http import connected, post, served
from tests.serving.support import client_of

ARGS = AppArgs(models=("fake",))
REPORTER = Reporter("test", REPORTS_LOST)
KEY = "a-key-that-is-long-enough"


class FullBackend:
    """Has no room, and nothing to caption with: a request that comes so far fails."""

    full = True

    def refusal(self) -> OverloadedError | None:
        return OverloadedError("queue_full", "96 images wait already", 4) if self.full else None


def application(backend: FullBackend, keys: ApiKeys | None = None, reporter: Reporter = REPORTER) -> FastAPI:
    models = ServedModels.from_args(ARGS)
    return build_api(Services(ARGS, models, cast(Backend, backend), reporter, keys=keys))


def test_every_route_of_the_captioner_refuses_whatever_is_sent() -> None:
    async def scenario() -> None:
        async with client_of(application(FullBackend())) as client:
            for route in CAPTIONER_ROUTES:
                answer = await client.post(route, content=b"no request at all", headers={"x-request-id": "r-1"})
                assert (answer.status_code, answer.headers["retry-after"]) == (429, "4")
                assert answer.headers["x-request-id"] == "r-1"
                assert answer.headers["cache-control"] == "no-store"
                if route == "/v1/chat/completions":
                    assert answer.json()["error"]["code"] == "rate_limit_exceeded"
                else:
                    problem = answer.json()
                    assert (problem["code"], problem["request_id"]) == ("queue_full", "r-1")
                    assert problem["detail"] == "96 images wait already"

    asyncio.run(scenario())


def test_the_routes_are_those_that_there_are() -> None:
    paths = build_api(Services(ARGS, ServedModels.from_args(ARGS), cast(Backend, FullBackend()), REPORTER)).openapi()
    assert set(paths["paths"]) >= CAPTIONER_ROUTES


def test_what_needs_no_room_is_answered_and_so_is_everybody_when_there_is_room() -> None:
    backend = FullBackend()

    async def scenario() -> None:
        async with client_of(application(backend)) as client:
            assert (await client.get("/v1/models")).status_code == 200
            assert (await client.get("/v1/captions")).status_code == 405
            backend.full = False
            answer = await client.post("/v1/captions", content=b"{", headers={"content-type": "application/json"})
            assert answer.json()["code"] == "malformed_json"

    asyncio.run(scenario())


def test_a_key_is_asked_for_first(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"alice: {KEY}")
    keys = ApiKeys(read_api_keys(KeyArgs(file=tmp_path / "keys")))

    async def scenario() -> None:
        async with client_of(application(FullBackend(), keys)) as client:
            assert (await client.post("/v1/captions")).status_code == 401
            assert (await client.post("/v1/captions", headers={"x-api-key": KEY})).status_code == 429

    asyncio.run(scenario())


def test_refusals_are_counted() -> None:
    reporter, store = Reporter("test", REPORTS_LOST), Metrics()

    async def scenario() -> None:
        async with client_of(application(FullBackend(), reporter=reporter)) as client:
            for _ in range(3):
                await client.post("/v1/captions")

    asyncio.run(scenario())
    report = reporter._take(even_if_empty=False)
    assert report is not None
    store.apply(report)
    text = store.render().decode()
    assert 'limner_errors_total{code="queue_full"} 3.0' in text
    assert 'limner_requests_total{route="/v1/captions",status="429"} 3.0' in text


def test_a_client_keeps_its_connection_where_its_body_has_come() -> None:
    with served(EdgeGuard(application(FullBackend()))) as url, connected(url) as connection:
        for size in (10, 300_000):
            answer = connection.send(post("/v1/captions", b"x" * size)).answer()
            assert (answer.status, answer.headers.get("connection")) == (429, None)


def test_a_slow_body_is_not_waited_for() -> None:
    with served(EdgeGuard(application(FullBackend()))) as url, connected(url) as connection:
        answer = connection.send(post("/v1/captions", b"x" * 1000)[:-500]).answer()
        assert (answer.status, answer.headers["connection"]) == (429, "close")
        connection.send(b"x" * 500)
        assert connection.ended()


def test_a_client_that_waits_to_be_asked_for_its_body_is_not_asked() -> None:
    with served(EdgeGuard(application(FullBackend()))) as url, connected(url) as connection:
        head = post("/v1/captions", b"x" * 1000, b"expect: 100-continue")[:-1000]
        answer = connection.send(head).answer()
        assert (answer.status, answer.headers["connection"]) == (429, "close")
