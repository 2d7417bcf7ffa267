"""Headers on every answer, and pages of other origins."""

import asyncio

import httpx
import pytest

from serving.args import AppArgs
from tests.serving.support import GatedPipeline, local_app, png

ORIGIN = "https://example.org"


def ask(method: str, path: str, cors: tuple[str, ...] = (), **options: object) -> httpx.Response:
    async def scenario() -> httpx.Response:
        async with local_app(GatedPipeline(), AppArgs(models=("fake",), cors_origins=cors)) as (client, _):
            return await client.request(method, path, **options)  # type: ignore[arg-type]

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(("GET", path, 200) for path in ("/", "/docs", "/healthz", "/metrics", "/v1/models", "/page/app.js")),
        *(("GET", "/nowhere", 404), ("PUT", "/v1/captions", 405), ("POST", "/v1/captions", 415)),
    ],
)
def test_every_answer_has_them(method: str, path: str, status: int) -> None:
    answer = ask(method, path)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers.get("cache-control") == ("no-store" if path.startswith("/v1/") else _own_caching(path))
    assert "access-control-allow-origin" not in answer.headers


def _own_caching(path: str) -> str | None:
    return "no-cache" if path.startswith("/page/") else None


def test_captions_are_not_kept_by_caches() -> None:
    answer = ask("POST", "/v1/captions", content=png(), headers={"content-type": "image/png"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


def test_an_unexpected_failure_has_them_too() -> None:
    async def scenario() -> httpx.Response:
        async with local_app(GatedPipeline(), AppArgs(models=("fake",))) as (client, _):
            client._transport.app.state.services.models.cards.clear()  # type: ignore[attr-defined]
            return await client.post("/v1/captions", content=png(), headers={"content-type": "image/png"})

    answer = asyncio.run(scenario())
    assert (answer.status_code, answer.headers["x-content-type-options"]) == (500, "nosniff")


def test_no_other_origin_is_let_in_by_default() -> None:
    preflight = {"origin": ORIGIN, "access-control-request-method": "POST"}
    answer = ask("OPTIONS", "/v1/captions", headers=preflight)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_origins_that_are_named_may_ask_and_no_other() -> None:
    preflight = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,x-api-key",
    }
    answer = ask("OPTIONS", "/v1/captions", (ORIGIN,), headers=preflight)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert "access-control-allow-credentials" not in answer.headers
    answer = ask("OPTIONS", "/v1/captions", (ORIGIN,), headers=preflight | {"origin": "https://evil.example"})
    assert answer.status_code == 400 and "access-control-allow-origin" not in answer.headers
    answer = ask("GET", "/v1/models", (ORIGIN,), headers={"origin": ORIGIN})
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "retry-after" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in ask("GET", "/v1/models", (ORIGIN,), headers={"origin": "null"}).headers
    assert ask("GET", "/v1/models", ("*",), headers={"origin": ORIGIN}).headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "https://a b", "null", "", "https://*.org"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="is no origin"):
        AppArgs(cors_origins=(origin,))
    AppArgs(cors_origins=("http://localhost:3000", "https://[::1]:8", "*"))
