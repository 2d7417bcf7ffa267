"""The HTTP layer over a real engine in one process: the refusals that need a model which is held up."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from serving.args import AppArgs, Limits
from serving.engine import Engine
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


async def hold_up(client: httpx.AsyncClient, pipeline: GatedPipeline) -> "asyncio.Task[httpx.Response]":
    """A request that is in its pass until the gate opens."""
    pipeline.gate.clear()
    pipeline.arrived.clear()
    task = asyncio.create_task(client.post("/v1/captions", content=png(), headers=PNG))
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
