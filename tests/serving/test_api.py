"""The HTTP layer over a real engine in one process: the refusals that need a model which is held up."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from serving.args import AppArgs, Limits
from serving.engine import Engine
from serving.pass_times import PassKind
from tests.serving.support import GatedPipeline, b64, local_app, pictures, png

Scenario = Callable[[httpx.AsyncClient, Engine, GatedPipeline], Awaitable[None]]
PNG = {"content-type": "image/png"}


def run(scenario: Scenario, **limits: Any) -> None:
    async def whole() -> None:
        pipeline = GatedPipeline()
        args = AppArgs(models=("fake",), limits=Limits(**limits))
        async with local_app(pipeline, args) as (client, engine):
            try:
                await scenario(client, engine, pipeline)
            finally:
                pipeline.gate.set()

    asyncio.run(whole())


async def hold_up(client: httpx.AsyncClient, pipeline: GatedPipeline, **options: Any) -> "asyncio.Task[httpx.Response]":
    """A request that is in its pass until the gate opens."""
    pipeline.gate.clear()
    pipeline.arrived.clear()
    task = asyncio.create_task(client.post("/v1/captions", content=png(), headers=PNG, params=options))
    await asyncio.to_thread(pipeline.arrived.wait, 10)
    return task


def json_request(count: int) -> dict[str, Any]:
    return {"images": [{"base64": b64(picture)} for picture in pictures(count)]}


def check_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert set(body) == {"type", "title", "status", "detail", "code", "request_id"}
    assert (body["status"], body["code"]) == (status, code)
    assert body["request_id"] == response.headers["x-request-id"]
    return body


def test_a_full_queue_is_429_with_retry_after() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        held = await hold_up(client, pipeline)
        waiting = asyncio.create_task(client.post("/v1/captions", json=json_request(3)))
        while engine._scheduler.queued_images < 3:
            await asyncio.sleep(0.005)
        refused = await client.post("/v1/captions", json=json_request(2))
        check_problem(refused, 429, "queue_full")
        assert refused.headers["retry-after"] == "1"
        metrics = (await client.get("/metrics")).text
        assert "limner_queue_images 3.0" in metrics
        assert 'limner_errors_total{code="queue_full"} 1.0' in metrics
        pipeline.gate.set()
        assert [(await task).status_code for task in (held, waiting)] == [200, 200]

    run(scenario, max_images=4, max_queue_images=4)


def test_the_seconds_of_retry_after_follow_from_the_queue_and_the_pace() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        engine._scheduler._times.learn(PassKind("fake", str, 1), 1, 7.0)  # as if the model had needed that long
        held = await hold_up(client, pipeline)
        waiting = asyncio.create_task(client.post("/v1/captions", json=json_request(4)))
        while engine._scheduler.queued_images < 4:
            await asyncio.sleep(0.005)
        refused = await client.post("/v1/captions", content=png(), headers=PNG)
        check_problem(refused, 429, "queue_full")
        assert refused.headers["retry-after"] == "14"  # half of 4
        pipeline.gate.set()
        assert [(await task).status_code for task in (held, waiting)] == [200, 200]

    run(scenario, max_images=4, max_queue_images=4)


@pytest.mark.parametrize("route", ["captions", "score"])
def test_images_of_a_client_that_hangs_up_leave_the_queue(route: str) -> None:
    body = json_request(3) | ({"captions": [["a"]] * 3} if route == "score" else {})

    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        pipeline.scorer = SimpleNamespace(scorer_id="test")  # type: ignore[assignment]  # it comes to no scores
        held = await hold_up(client, pipeline, score=False)
        leaving, ended = await begin(client, f"/v1/{route}", json.dumps(body).encode())
        while engine._scheduler.queued_images < 3:
            await asyncio.sleep(0.005)
        leaving()
        await ended
        assert engine._scheduler.queued_images == 0
        assert f'limner_requests_total{{route="/v1/{route}",status="499"}} 1.0' in (await client.get("/metrics")).text
        pipeline.gate.set()
        assert (await held).status_code == 200
        assert pipeline.batches == [1]

    run(scenario)


async def begin(
    client: httpx.AsyncClient, path: str, body: bytes
) -> tuple[Callable[[], None], "asyncio.Future[list[Any]]"]:
    """A request under way: a function by which its client hangs up, and what it will have been sent."""
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    messages.put_nowait({"type": "http.request", "body": body, "more_body": False})
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def whole() -> list[Any]:
        await client._transport.app(scope, messages.get, send)  # type: ignore[attr-defined]
        return sent

    return lambda: messages.put_nowait({"type": "http.disconnect"}), asyncio.ensure_future(whole())


def test_a_late_answer_is_504() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        held = await hold_up(client, pipeline)
        check_problem(await client.post("/v1/captions", json=json_request(2)), 504, "deadline_exceeded")
        check_problem(await held, 504, "deadline_exceeded")

    run(scenario, deadline_s=0.3)


def test_draining_answers_the_accepted_and_refuses_the_rest_with_503() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        held = await hold_up(client, pipeline)
        draining = asyncio.create_task(asyncio.to_thread(engine.drain, 10))
        while not engine._scheduler._closing:
            await asyncio.sleep(0.005)
        refused = await client.post("/v1/captions", content=png(), headers=PNG)
        check_problem(refused, 503, "shutting_down")
        assert refused.headers["retry-after"] == "5"
        pipeline.gate.set()
        assert (await held).status_code == 200
        assert await draining

    run(scenario)


def test_a_broken_model_is_500_without_its_reason() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        pipeline.captioner = None  # type: ignore[assignment]
        body = check_problem(await client.post("/v1/captions", content=png(), headers=PNG), 500, "internal_error")
        assert "NoneType" not in body["detail"]

    run(scenario)


def test_limits_of_images() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        body = check_problem(await client.post("/v1/captions", json=json_request(3)), 422, "invalid_request")
        assert body["detail"] == "images: 3 given, at most 2 in one request"
        check_problem(await client.post("/v1/captions", content=png(size=(30, 30)), headers=PNG), 413, "too_large")
        body = check_problem(await client.post("/v1/captions", content=bytes(3000), headers=PNG), 413, "body_too_large")
        assert "2000 bytes" in body["detail"]

    run(scenario, max_images=2, max_image_px=600, max_body_bytes=2000)
