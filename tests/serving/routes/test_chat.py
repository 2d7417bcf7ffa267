"""The chat route over a real engine in one process: answers, refusals in OpenAI's form, the ones of middleware too."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest

from serving.args import AppArgs, Limits
from serving.engine import Engine
from tests.serving.support import GatedPipeline, b64, local_app, pictures, png
from tests.serving.test_api import hold_up, json_request

Scenario = Callable[[httpx.AsyncClient, Engine, GatedPipeline], Awaitable[None]]
CHAT = "/v1/chat/completions"


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


def part(image: bytes | str) -> dict[str, Any]:
    url = image if isinstance(image, str) else f"data:image/png;base64,{b64(image)}"
    return {"type": "image_url", "image_url": {"url": url}}


def body(*images: bytes | str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "Describe."}, *map(part, images)]
    return {"model": "fake", "messages": [{"role": "user", "content": content}], **fields}


def check_error(response: httpx.Response, status: int, code: str, param: str | None = None) -> str:
    """The message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param), error
    return str(error["message"])


async def captions(client: httpx.AsyncClient, *images: bytes, **fields: Any) -> list[list[dict[str, Any]]]:
    """What ``/v1/captions`` says of the images."""
    listed = [{"base64": b64(image)} for image in images]
    response = await client.post("/v1/captions", json={"images": listed, **fields})
    return [result["captions"] for result in response.json()["results"]]


def test_the_captions_are_those_of_the_other_route() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        images = pictures(3)
        answer = (await client.post(CHAT, json=body(*images, n=2), headers={"x-request-id": "r-9"})).json()
        assert list(answer)[:2] == ["id", "created"] and answer["id"] == "chatcmpl-r-9"
        expected = await captions(client, *images, num_captions=2)
        for number, choice in enumerate(answer["choices"]):
            assert choice["message"]["content"] == "\n".join(found[number]["text"] for found in expected)
        assert answer["usage"]["completion_tokens"] == sum(c["tokens"] for found in expected for c in found)
        [alone] = (await client.post(CHAT, json=body(images[0]))).json()["choices"]
        [[caption]] = await captions(client, images[0])
        assert (alone["message"]["content"], alone["finish_reason"]) == (caption["text"], "stop")

    run(scenario)


def test_more_captions_than_beams_and_a_decode_of_its_own() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        answer = (await client.post(CHAT, json=body(png(), n=5))).json()
        [expected] = await captions(client, png(), num_captions=5, decode={"options": {"beams": 5}})
        assert [choice["message"]["content"] for choice in answer["choices"]] == [found["text"] for found in expected]
        decode = {"name": "diverse_beam", "options": {"max_tokens": 3}}
        answer = (await client.post(CHAT, json=body(png(), decode=decode))).json()
        [[caption]] = await captions(client, png(), decode=decode)
        assert answer["choices"][0]["message"]["content"] == caption["text"]
        assert answer["choices"][0]["finish_reason"] == "length"

    run(scenario)


@pytest.mark.parametrize(
    ("request_body", "status", "code", "param", "says"),
    [
        (body(), 400, "invalid_request", "messages", "no picture"),
        (body(png(), model="nope"), 404, "model_not_found", "model", "there are: fake"),
        ({"messages": body(png())["messages"]}, 400, "invalid_request", "model", "Field required"),
        (body("https://example.com/a.png"), 403, "url_refused", "messages", "by url"),
        (body("data:image/png;base64,%%%"), 400, "bad_base64", "messages", "base64"),
        (body(b"no picture"), 400, "not_an_image", "messages", ""),
        (body(png(), b"no picture"), 400, "not_an_image", "messages", "image 2 of 2: "),
        (body(*[png()] * 33), 400, "invalid_request", "messages", "33 given, at most 32"),
        (body(png(), temperature=3), 400, "invalid_request", "temperature", "less than or equal to 2"),
        (body(png(), n=9), 400, "invalid_request", "n", "9 beams"),
        (body(png(), n=65, temperature=1), 400, "invalid_request", "n", "at most 64"),
        (body(png(), n=2, decode={"name": "greedy"}), 400, "invalid_request", "n", "'greedy'"),
        (body(png(), descriptiveness=0.5), 400, "unsupported_option", "descriptiveness", "has no spectrum"),
        (body(png(), decode={"guidance": 2.0}), 400, "unsupported_option", "decode.guidance", "'fake'"),
        (body(png(), decode={"name": "greedy"}, seed=1), 400, "invalid_request", "seed", "does not go with decode"),
        (body(png(), score=True), 400, "unsupported_option", "score", "without a scorer"),
        ([], 400, "invalid_request", None, "valid dictionary"),
    ],
)
def test_what_cannot_be_had(request_body: Any, status: int, code: str, param: str | None, says: str) -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        assert says in check_error(await client.post(CHAT, json=request_body), status, code, param)
        if isinstance(request_body, dict):  # a stream has not begun when it is refused
            check_error(await client.post(CHAT, json={**request_body, "stream": True}), status, code, param)
        counted = {"model_not_found": "unknown_model"}.get(code, code)
        assert f'limner_errors_total{{code="{counted}"}}' in (await client.get("/metrics")).text

    run(scenario)


def test_refusals_of_the_http_layer_have_the_form_too() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        check_error(await client.get(CHAT), 405, "method_not_allowed")
        check_error(await client.post(CHAT, content=b"{"), 415, "unsupported_media_type")
        as_json = {"content-type": "application/json"}
        check_error(await client.post(CHAT, content=b'{"n": 1, "n": 2}', headers=as_json), 400, "malformed_json")
        response = await client.post(CHAT, content=bytes(3000), headers=as_json)
        assert "2000 bytes" in check_error(response, 413, "body_too_large")
        check_error(await client.post(CHAT, json=body(png(size=(30, 30)))), 413, "too_large", "messages")

    run(scenario, max_body_bytes=2000, max_image_px=600)


def test_a_body_that_does_not_come() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        async def never() -> Any:
            yield b"{"
            await asyncio.Event().wait()

        response = await client.post(CHAT, content=never(), headers={"content-type": "application/json"})
        check_error(response, 408, "body_timeout")

    run(scenario, body_timeout_s=0.1)


def test_an_unexpected_failure_is_told_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object) -> None:
        raise ZeroDivisionError("a secret")

    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        monkeypatch.setattr("serving.routes.chat.completion_of", fails)
        assert "secret" not in check_error(await client.post(CHAT, json=body(png())), 500, "internal_error")

    run(scenario)


def their_client(client: httpx.AsyncClient) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", max_retries=0, http_client=client)


def test_a_full_queue_is_a_rate_limit_error_of_their_client() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        held = await hold_up(client, pipeline)
        waiting = asyncio.create_task(client.post("/v1/captions", json=json_request(3)))
        while engine._scheduler.queued_images < 3:
            await asyncio.sleep(0.005)
        with pytest.raises(openai.RateLimitError) as error:
            await their_client(client).chat.completions.create(**body(png(), png("blue")))
        assert (error.value.code, error.value.type) == ("rate_limit_exceeded", "rate_limit_error")
        assert int(error.value.response.headers["retry-after"]) >= 1
        pipeline.gate.set()
        assert [(await task).status_code for task in (held, waiting)] == [200, 200]

    run(scenario, max_images=4, max_queue_images=4)


def test_draining_is_503() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        assert await asyncio.to_thread(engine.drain, 10)
        with pytest.raises(openai.InternalServerError) as error:
            await their_client(client).chat.completions.create(**body(png()))
        assert (error.value.status_code, error.value.code, error.value.type) == (503, "shutting_down", "server_error")
        assert error.value.response.headers["retry-after"] == "5"

    run(scenario)


def test_a_stream_is_the_same_answer_in_pieces() -> None:
    async def scenario(client: httpx.AsyncClient, engine: Engine, pipeline: GatedPipeline) -> None:
        asked = body(*pictures(2), n=2)
        whole = (await client.post(CHAT, json=asked)).json()
        response = await client.post(CHAT, json={**asked, "stream": True})
        assert response.headers["content-type"].startswith("text/event-stream")
        *chunks, done = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
        assert done == "[DONE]"
        texts = ["", ""]
        for piece in (piece for chunk in chunks for piece in json.loads(chunk)["choices"]):
            texts[piece["index"]] += piece["delta"].get("content", "")
        assert texts == [choice["message"]["content"] for choice in whole["choices"]]

    run(scenario)
