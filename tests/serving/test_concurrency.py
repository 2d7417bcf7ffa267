"""Many clients at once: nobody gets another's captions, those who leave do no harm, too many are told so."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from models.catalog import DEFAULT_MODEL
from tests.serving.conftest import MAX_QUEUE_IMAGES, served_models
from tests.serving.support import b64, pictures

OPTION_SETS: list[dict[str, Any]] = [
    {"decode": {"name": "greedy"}},
    {"decode": {"name": "beam", "options": {"beams": 4}}, "num_captions": 3, "score": False},
    {"decode": {"name": "diverse_beam", "options": {"max_tokens": 7}}, "num_captions": 2},
    {"decode": {"name": "sample", "options": {"temperature": 1.5}}, "num_captions": 2},
]
if DEFAULT_MODEL in served_models():
    OPTION_SETS += [
        {"model": DEFAULT_MODEL, "decode": {"name": "beam", "guidance": guidance}, "score": False}
        for guidance in (1, 2)
    ]


def requests(count: int) -> list[dict[str, Any]]:
    """They take turns with the options; sampling ones have seeds of their own."""
    made = []
    for index, picture in enumerate(pictures(count)):
        options = OPTION_SETS[index % len(OPTION_SETS)]
        if options["decode"]["name"] == "sample":
            options = {**options, "decode": {"name": "sample", "options": {"temperature": 1.5, "seed": index}}}
        made.append({"images": [{"base64": b64(picture)}], **options})
    return made


def with_client(server: str, scenario: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def whole() -> None:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=server, timeout=90, limits=limits, trust_env=False) as client:
            await scenario(client)

    asyncio.run(whole())


def test_64_at_once_give_what_one_by_one_gives(server: str) -> None:
    asked = requests(64)

    async def scenario(client: httpx.AsyncClient) -> None:
        async def results(request: dict[str, Any]) -> Any:
            response = await client.post("/v1/captions", json=request)
            assert response.status_code == 200, response.text
            return response.json()["results"]

        alone = [await results(request) for request in asked]
        order = random.Random(0).sample(range(64), 64)
        together = await asyncio.gather(*(results(asked[index]) for index in order))
        for index, found in zip(order, together, strict=True):
            (said, logprobs), (expected, expected_logprobs) = map(_without_scores, (found, alone[index]))
            assert said == expected and logprobs == pytest.approx(expected_logprobs, abs=1e-4)

    with_client(server, scenario)


def _without_scores(results: list[dict[str, Any]]) -> tuple[list[list[tuple[str, int]]], list[float]]:
    """Texts and lengths, which are equal; probabilities, as close as fp32 sums in another order leave them."""
    said = [[(caption["text"], caption["tokens"]) for caption in result["captions"]] for result in results]
    return said, [caption["logprob"] for result in results for caption in result["captions"]]


async def _leave(server: str, body: bytes, after_s: float) -> None:
    """Send a request and hang up."""
    address = urlsplit(server)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"POST /v1/captions HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    await asyncio.sleep(after_s)
    writer.transport.abort()


def test_clients_that_leave_do_no_harm_to_those_that_stay(server: str) -> None:
    body = pictures(1)[0]

    async def scenario(client: httpx.AsyncClient) -> None:
        await asyncio.gather(*(_leave(server, body, 0.002 * (index % 25)) for index in range(50)))
        answers = await asyncio.gather(*(client.post("/v1/captions", json=request) for request in requests(20)))
        assert [answer.status_code for answer in answers] == [200] * 20
        async with asyncio.timeout(30):
            while "limner_queue_images 0.0" not in (await client.get("/metrics")).text:
                await asyncio.sleep(0.2)

    with_client(server, scenario)


async def _flood(server: str, body: bytes, leave: asyncio.Event) -> None:
    """Send a JSON request and hang up when told to."""
    address = urlsplit(server)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    kind = f"content-type: application/json\r\ncontent-length: {len(body)}"
    writer.write(f"POST /v1/captions HTTP/1.1\r\nhost: x\r\n{kind}\r\n\r\n".encode() + body)
    await leave.wait()
    writer.transport.abort()


async def _metric(client: httpx.AsyncClient, name: str) -> float:
    """A value of ``/metrics``, 0 where it is not there yet."""
    lines = (await client.get("/metrics")).text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " ")), 0.0)


def test_a_flood_whose_clients_hang_up_leaves_the_queue_and_is_not_worked_off(server: str) -> None:
    images = [{"base64": b64(picture)} for picture in pictures(32)]
    options = {"name": "beam", "options": {"beams": 64, "max_tokens": 200}}
    body = json.dumps({"images": images, "model": "fake", "decode": options, "score": False}).encode()
    beam, greedy = (f'limner_captions_total{{model="fake",strategy="{name}"}}' for name in ("beam", "greedy"))

    async def scenario(client: httpx.AsyncClient) -> None:
        before, leave = await _metric(client, beam), asyncio.Event()
        clients = [asyncio.create_task(_flood(server, body, leave)) for _ in range(3)]
        async with asyncio.timeout(60):
            while await _metric(client, "limner_queue_images") < 32:
                await asyncio.sleep(0.05)
            leave.set()
            await asyncio.gather(*clients)
            while await _metric(client, "limner_queue_images"):
                await asyncio.sleep(0.05)
            quick = {"images": images[:1], "model": "fake", "decode": {"name": "greedy"}, "score": False}
            told = await _metric(client, greedy)
            assert (await client.post("/v1/captions", json=quick)).status_code == 200
            while await _metric(client, greedy) == told:  # what came before it has been told by then as well
                await asyncio.sleep(0.05)
        assert await _metric(client, beam) - before <= 64  # of 96: at least those that waited never ran

    with_client(server, scenario)


def test_more_images_than_may_wait_are_429_and_never_a_refusal_of_rays(server: str) -> None:
    images = [{"base64": b64(picture)} for picture in pictures(32)]
    slow = {"images": images, "decode": {"name": "beam", "options": {"beams": 24}}, "score": False}

    async def scenario(client: httpx.AsyncClient) -> None:
        count = 4 * MAX_QUEUE_IMAGES // 32
        answers = await asyncio.gather(*(client.post("/v1/captions", json=slow) for _ in range(count)))
        statuses = {answer.status_code for answer in answers}
        assert statuses == {200, 429}
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.json()["code"] == "queue_full"
        assert 1 <= int(refused.headers["retry-after"]) <= 60

    with_client(server, scenario)
