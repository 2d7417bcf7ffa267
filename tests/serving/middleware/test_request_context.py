"""The id of a request, its measurements, and answers to what nobody expected."""

import asyncio
import logging

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect

from serving import metrics
from serving.middleware.request_context import RequestContext
from serving.reports import Reporter
from tests.serving.support import client_of


@pytest.fixture
def reporter() -> Reporter:
    return Reporter("test", metrics.REPORTS_LOST)


@pytest.fixture
def app(reporter: Reporter) -> FastAPI:
    made = FastAPI()

    @made.get("/id/{name}")
    async def request_id(request: Request, name: str) -> str:
        return str(request.state.request_id)

    @made.get("/fails")
    async def fails() -> None:
        raise ZeroDivisionError("a secret")

    @made.get("/gone")
    async def gone() -> None:
        raise ClientDisconnect

    made.add_middleware(RequestContext, reporter=reporter, return_id=True)
    return made


def get(app: FastAPI, path: str, **headers: str) -> httpx.Response:
    async def scenario() -> httpx.Response:
        async with client_of(app) as client:
            return await client.get(path, headers=headers)

    return asyncio.run(scenario())


def test_a_usable_id_is_kept(app: FastAPI) -> None:
    response = get(app, "/id/x", **{"x-request-id": "a.b:c-1_2/3"})
    assert response.json() == response.headers["x-request-id"] == "a.b:c-1_2/3"


@pytest.mark.parametrize("given", ["", "two words", "a" * 129, "<b>", 'a"b'])
def test_any_other_is_replaced(app: FastAPI, given: str) -> None:
    response = get(app, "/id/x", **{"x-request-id": given})
    assert response.json() == response.headers["x-request-id"] != given
    assert len(response.json()) == 36


def test_an_unexpected_error_is_logged_and_told_without_its_text(
    app: FastAPI, reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        response = get(app, "/fails", **{"x-request-id": "r-7"})
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.json()["code"], response.json()["request_id"]) == ("internal_error", "r-7")
    assert "secret" not in response.text
    assert "request r-7 failed" in caplog.text and "ZeroDivisionError" in caplog.text
    counts = reporter._pending.counts
    assert counts[metrics.ERRORS, ("internal_error",)] == counts[metrics.REQUESTS, ("/fails", "500")] == 1


def test_requests_are_counted_by_route_and_status_not_by_what_clients_write(app: FastAPI, reporter: Reporter) -> None:
    for path in ("/id/1", "/id/2", "/nowhere/1", "/nowhere/2", "/openapi.json"):
        get(app, path)
    assert reporter._pending.counts == {
        (metrics.REQUESTS, ("/id/{name}", "200")): 2,
        (metrics.REQUESTS, ("unmatched", "404")): 2,
        (metrics.REQUESTS, ("/openapi.json", "200")): 1,
    }
    observed = [labels for _, labels, _ in reporter._pending.observations]
    assert observed == [("/id/{name}", "200")] * 2 + [("unmatched", "404")] * 2 + [("/openapi.json", "200")]


def test_a_client_that_went_away_is_no_error(
    app: FastAPI, reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AssertionError):  # httpx's transport got no answer, as the client would not
        get(app, "/gone")
    assert reporter._pending.counts == {(metrics.REQUESTS, ("/gone", "499")): 1}
    assert not caplog.records
