"""Requests with and without a key, over the whole application."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from serving.api_keys import ApiKeys, read_api_keys
from serving.args import AppArgs, KeyArgs
from serving.metrics import REPORTS_LOST
from serving.middleware.authentication import Authentication, needs_key
from serving.reports import Reporter
from tests.serving.support import GatedPipeline, b64, local_app, png

KEY, OTHER = "the-key-of-alice-1", "the-key-of-bobby-2"
PNG = {"content-type": "image/png"}
Scenario = Callable[[httpx.AsyncClient], Awaitable[None]]


def run(scenario: Scenario, text: str = f"alice: {KEY}\nbob: {OTHER} 3") -> None:
    async def whole() -> None:
        keys = ApiKeys(read_api_keys(KeyArgs(env="K"), {"K": text}))
        async with local_app(GatedPipeline(), AppArgs(models=("fake",)), keys=keys) as (client, _):
            await scenario(client)

    asyncio.run(whole())


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/healthz", "/readyz", "/page/app.js"])
def test_what_is_the_same_for_everybody_is_open(path: str) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        assert (await client.get(path)).status_code == 200

    run(scenario)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", f"/v1/{name}") for name in ("captions", "compare", "score")),
        *(("GET", path) for path in ("/v1/models", "/v1/experiments", "/v1/experiments/x", "/metrics", "/nowhere")),
        *(("GET", path) for path in ("/%76%31/models", "//v1/models", "/page/../v1/models", "/docs/", "/V1/models")),
        ("POST", "/v1/experiments/x/votes"),
        ("OPTIONS", "/v1/captions"),
    ],
)
def test_all_else_needs_a_key(method: str, path: str) -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for headers in ({}, {"x-api-key": KEY + "x"}, {"authorization": f"Basic {KEY}"}, {"authorization": "Bearer"}):
            refused = await client.request(method, path, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.headers["www-authenticate"] == 'Bearer realm="limner"'
            assert KEY not in refused.text
        for headers in ({"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}, {"authorization": f"bearer  {KEY} "}):
            assert (await client.request(method, path, headers=headers)).status_code != 401

    run(scenario)


def test_no_path_that_a_route_knows_is_open_by_another_spelling() -> None:
    assert needs_key("/healthz/") and needs_key("/page") and needs_key("") and needs_key("/metrics")


def test_the_body_is_not_read_without_a_key() -> None:
    async def whole() -> None:
        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            raise AssertionError("passed")

        async def read() -> Any:
            raise AssertionError("read")

        async def send(message: Any) -> None:
            sent.append(message)

        sent: list[Any] = []
        reporter = Reporter("test", REPORTS_LOST)
        services = SimpleNamespace(reporter=reporter)
        scope = {
            "type": "http",
            "path": "/v1/captions",
            "headers": [],
            "app": SimpleNamespace(state=SimpleNamespace(services=services)),
            "state": {"request_id": "r"},
        }
        await Authentication(app, keys=ApiKeys([]))(scope, read, send)
        assert sent[0]["status"] == 401

    asyncio.run(whole())


def test_openais_route_answers_in_its_form() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        refused = await client.post("/v1/chat/completions", json={})
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert refused.json()["error"]["code"] == "invalid_api_key"

    run(scenario)


def test_a_key_has_a_rate_in_images() -> None:
    images = [{"base64": b64(png())}] * 2

    async def scenario(client: httpx.AsyncClient) -> None:
        client.headers["x-api-key"] = OTHER
        assert (await client.post("/v1/captions", json={"images": images})).status_code == 200
        arms = {"images": images[:1], "arms": [{"label": "a"}, {"label": "b"}]}
        url = {"url": f"data:image/png;base64,{b64(png())}"}
        parts = [{"type": "image_url", "image_url": url}] * 2
        chat = {"model": "fake", "messages": [{"role": "user", "content": parts}]}
        bodies = (("captions", {"images": images}), ("compare", arms), ("chat/completions", chat))
        for route, body in bodies:
            refused = await client.post(f"/v1/{route}", json=body)
            assert refused.status_code == 429, refused.text
            assert 15 <= int(refused.headers["retry-after"]) <= 20
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert (await client.post("/v1/captions", content=png(), headers=PNG)).status_code == 200
        refused = await client.post("/v1/captions", content=png(), headers=PNG)
        assert (refused.json()["code"], "'bob'" in refused.json()["detail"]) == ("rate_limited", True)
        other = await client.post("/v1/captions", json={"images": images * 4}, headers={"x-api-key": KEY})
        assert other.status_code == 200
        metrics = (await client.get("/metrics")).text
        assert 'limner_client_images_total{client="bob"} 3.0' in metrics
        assert 'limner_client_images_total{client="alice"} 8.0' in metrics
        assert 'limner_errors_total{code="rate_limited"} 4.0' in metrics

    run(scenario)


def test_the_document_says_so() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        document = json.loads((await client.get("/openapi.json")).text)
        assert set(document["components"]["securitySchemes"]) == {"bearer", "header"}
        captions, health = document["paths"]["/v1/captions"]["post"], document["paths"]["/healthz"]["get"]
        assert captions["security"] == [{"bearer": []}, {"header": []}]
        assert "rate_limited" in captions["responses"]["429"]["description"]
        assert "401" in captions["responses"] and "401" in document["paths"]["/metrics"]["get"]["responses"]
        assert "security" not in health and "401" not in health["responses"]

    run(scenario)
