"""Guidance over HTTP, by the real engine and the bundled captioner in one process."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from models.decoding import parse_decode
from models.images import load_image
from models.pipeline import CaptionPipeline, load_pipeline
from serving.args import AppArgs
from tests.serving.support import GatedPipeline, b64, local_app, pictures, png

PNG = {"content-type": "image/png"}


@pytest.fixture(scope="module")
def pipeline() -> CaptionPipeline:
    return load_pipeline("concise", scorer=None, device="cpu")


def run(pipeline: CaptionPipeline, scenario: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with local_app(pipeline, AppArgs(models=(pipeline.model_id,), scorer=None)) as (client, _):
            await scenario(client)

    asyncio.run(whole())


async def texts(client: httpx.AsyncClient, decode: dict[str, Any] | None, *images: bytes) -> list[str]:
    request = {"images": [{"base64": b64(image)} for image in images], "decode": decode}
    response = await client.post("/v1/captions", json=request)
    assert response.status_code == 200, response.text
    return [result["captions"][0]["text"] for result in response.json()["results"]]


def test_captions_are_those_of_the_pipeline(pipeline: CaptionPipeline) -> None:
    images = pictures(2)
    opened = [load_image(image).image for image in images]
    own = pipeline.card.decoding

    async def scenario(client: httpx.AsyncClient) -> None:
        found = {}
        for decode in (None, {"guidance": 1}, {"guidance": 2}, {"name": "greedy", "guidance": 2}, {"guidance": 0}):
            strategy = parse_decode(decode, own)
            expected = [captions[0].text for captions in pipeline.caption(opened, strategy).captions]
            found[str(decode)] = await texts(client, decode, *images)
            assert found[str(decode)] == expected
        assert found["None"] == found["{'guidance': 1}"] != found["{'guidance': 2}"]
        assert len(set(found["{'guidance': 0}"])) == 1

    run(pipeline, scenario)


def test_every_form_of_a_request_takes_it(pipeline: CaptionPipeline) -> None:
    options = {"decode": {"name": "beam", "options": {"beams": 2}, "guidance": 2.5}}

    async def scenario(client: httpx.AsyncClient) -> None:
        expected = await texts(client, options["decode"], png())
        form = {"images": ("a.png", png(), "image/png"), "request": (None, json.dumps(options), "application/json")}
        query = {"decode": json.dumps(options["decode"])}
        for response in (
            await client.post("/v1/captions", files=form),
            await client.post("/v1/captions", params=query, content=png(), headers=PNG),
        ):
            assert [result["captions"][0]["text"] for result in response.json()["results"]] == expected

    run(pipeline, scenario)


def test_mixed_requests_at_once_give_what_one_by_one_gives(pipeline: CaptionPipeline) -> None:
    asked = [({"guidance": (1, 1.5, 3)[number % 3]}, picture) for number, picture in enumerate(pictures(12))]

    async def scenario(client: httpx.AsyncClient) -> None:
        alone = [await texts(client, *request) for request in asked]
        order = random.Random(0).sample(range(12), 12)
        together = await asyncio.gather(*(texts(client, *asked[number]) for number in order))
        assert list(together) == [alone[number] for number in order]

    run(pipeline, scenario)


def test_a_model_without_null_memory_refuses_it_whatever_the_pictures() -> None:
    async def scenario(client: httpx.AsyncClient) -> None:
        for image in (png(), b"no picture"):
            request = {"images": [{"base64": b64(image)}], "decode": {"guidance": 1.5}}
            response = await client.post("/v1/captions", json=request)
            assert (response.status_code, response.json()["code"]) == (422, "unsupported_option")
            assert "decode.guidance 1.5: models of the family 'fake'" in response.json()["detail"]
        assert await texts(client, {"guidance": 1}, png()) == await texts(client, None, png())

    run(GatedPipeline(), scenario)
