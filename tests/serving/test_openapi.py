"""The document that describes the interface: valid, complete, true."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from fastapi.openapi.models import OpenAPI

from serving.args import AppArgs
from serving.schemas import CaptionOptions
from tests.serving.support import GatedPipeline, b64, local_app, png


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    async def scenario() -> dict[str, Any]:
        async with local_app(GatedPipeline(), AppArgs(models=("fake",))) as (client, _):
            page = (await client.get("/docs")).text
            for path in re.findall(r'(?:href|src)="([^"]+)"', page):  # nothing of it comes from another host
                assert (await client.get(path)).status_code == 200, path
            assert "http" not in re.sub(r"<!--.*?-->", "", page, flags=re.S)
            found: dict[str, Any] = (await client.get("/openapi.json")).json()
            return found

    return asyncio.run(scenario())


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_it_is_openapi_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    OpenAPI.model_validate(document)
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas


def test_every_route_and_nothing_else(document: dict[str, Any]) -> None:
    assert {(path, method) for path, item in document["paths"].items() for method in item} == {
        ("/v1/captions", "post"),
        ("/v1/compare", "post"),
        ("/v1/score", "post"),
        ("/v1/chat/completions", "post"),
        ("/v1/models", "get"),
        ("/v1/experiments", "get"),
        ("/v1/experiments/{name}", "get"),
        ("/v1/experiments/{name}/votes", "post"),
        ("/healthz", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    }


def test_the_three_forms_of_a_caption_request(document: dict[str, Any]) -> None:
    route = document["paths"]["/v1/captions"]["post"]
    assert set(route["requestBody"]["content"]) == {
        "application/json",
        "multipart/form-data",
        "image/*",
        "application/octet-stream",
    }
    assert {parameter["name"] for parameter in route["parameters"]} == set(CaptionOptions.model_fields)


def test_errors_are_problem_documents(document: dict[str, Any]) -> None:
    responses = document["paths"]["/v1/captions"]["post"]["responses"]
    assert set(responses) == {"200", "400", "403", "404", "408", "413", "415", "422", "429", "500", "503", "504"}
    assert all("application/problem+json" in responses[status]["content"] for status in set(responses) - {"200"})


def test_errors_of_the_chat_route_are_openais(document: dict[str, Any]) -> None:
    responses = document["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert set(responses) == {"200", "400", "403", "404", "408", "413", "415", "429", "500", "503", "504"}
    assert set(responses["200"]["content"]) == {"application/json", "text/event-stream"}
    event = responses["200"]["content"]["text/event-stream"]["itemSchema"]  # as OpenAPI 3.2 describes events
    data, end = event["properties"]["data"]["anyOf"]
    assert data["contentSchema"] == {"$ref": "#/components/schemas/ChatChunk"}
    assert end == {"const": "[DONE]"}
    for status in set(responses) - {"200"}:
        schema = responses[status]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/OpenAIError"}


def test_real_requests_and_answers_fit_their_schemas(document: dict[str, Any]) -> None:
    request = {"images": [{"base64": b64(png())}], "decode": {"name": "beam", "options": {"beams": 2}}}
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64(png())}"}}
    chat = {"model": "fake", "messages": [{"role": "user", "content": [{"type": "text", "text": "What?"}, picture]}]}

    async def scenario() -> list[Any]:
        async with local_app(GatedPipeline(), AppArgs(models=("fake",))) as (client, _):
            answers = [
                await client.post("/v1/captions", json=request),
                await client.get("/nope"),
                await client.post("/v1/chat/completions", json=chat),
                await client.post("/v1/chat/completions", json={**chat, "model": "nope"}),
            ]
            streamed = await client.post("/v1/chat/completions", json={**chat, "stream": True})
            return [answer.json() for answer in answers] + [json.loads(streamed.text.splitlines()[0][5:])]

    names = ("CaptionRequest", "ChatRequest")
    answered = ("CaptionResponse", "Problem", "ChatCompletion", "OpenAIError", "ChatChunk")
    values = [request, chat, *asyncio.run(scenario())]
    for name, value in zip((*names, *answered), values, strict=True):
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.validate(value, schema)


def test_every_field_is_described(document: dict[str, Any]) -> None:
    plain = {"model", "id", "object", "images", "captions", "text", "name", "scorer", "clip_scores", "base64", "status"}
    schemas = document["components"]["schemas"]
    for schema in (
        "CaptionOptions",
        "DecodeInput",
        "CaptionOut",
        "IndexedResult",
        "CaptionResponse",
        "TimingOut",
        "ScoreResult",
        "ItemError",
        *("ChatRequest", "ChatMessage", "ContentPart", "ImageUrl", "StreamOptions"),
        *("ChatCompletion", "Choice", "AnswerMessage", "Usage", "ChatChunk", "ChunkChoice", "Delta"),
        *("OpenAIError", "OpenAIErrorDetail"),
        "VoteRequest",
        "ExperimentReport",
        "Results",
    ):
        for field, described in schemas[schema]["properties"].items():
            assert field in plain or described.keys() & {"description", "$ref"}, f"{schema}.{field}"
