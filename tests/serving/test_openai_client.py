"""OpenAI's own Python client against the running server."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.serving.support import b64, pictures, png


@pytest.fixture
def theirs(server: str) -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient(trust_env=False, timeout=60)
    with openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0, http_client=http) as client:
        yield client


def messages(*images: bytes) -> list[Any]:
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64(image)}"}} for image in images]
    return [
        {"role": "system", "content": "You describe pictures."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, *parts]},
    ]


def create(client: openai.OpenAI, *images: bytes, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "fake", "messages": messages(*images), **fields})


def contents(client: openai.OpenAI, *images: bytes, **fields: Any) -> list[str]:
    return [choice.message.content for choice in create(client, *images, **fields).choices]


def test_the_models(theirs: openai.OpenAI) -> None:
    found = list(theirs.models.list())
    assert found[0].id == "fake"
    for model in found:
        assert contents(theirs, png(size=(64, 48)), model=model.id)[0]


def test_a_data_uri_is_captioned_as_the_other_route_does(theirs: openai.OpenAI, client: httpx.Client) -> None:
    answer = create(theirs, png())
    listed = {"images": [{"base64": b64(png())}]}
    [caption] = client.post("/v1/captions", json=listed).json()["results"][0]["captions"]
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", caption["text"])
    assert (choice.finish_reason, choice.logprobs) == ("stop", None)
    assert choice.message.clip_scores == pytest.approx([caption["clip_score"]], abs=1e-4)
    assert choice.message.scorer == caption["scorer"]
    assert (answer.object, answer.model) == ("chat.completion", "fake")
    assert answer.id == f"chatcmpl-{answer._request_id}"
    assert answer.usage.completion_tokens == answer.usage.total_tokens == caption["tokens"]


def test_several_pictures_are_several_lines(theirs: openai.OpenAI) -> None:
    images = pictures(3)
    [content] = contents(theirs, *images)
    assert content.splitlines() == [contents(theirs, image)[0] for image in images]


def test_n_choices_best_first(theirs: openai.OpenAI) -> None:
    found = contents(theirs, png(), n=5)
    assert len(set(found)) == 5
    assert len(contents(theirs, png(), n=20, temperature=1.2)) == 20


def test_a_seed_repeats_what_a_temperature_draws(theirs: openai.OpenAI) -> None:
    options: dict[str, Any] = {"n": 4, "temperature": 1.5, "top_p": 0.95, "extra_body": {"score": False}}
    first = contents(theirs, png(), seed=7, **options)
    assert contents(theirs, png(), seed=7, **options) == first
    assert contents(theirs, png(), seed=8, **options) != first


def test_a_token_limit(theirs: openai.OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        [choice] = create(theirs, png(), **{name: 2}).choices
        assert (choice.finish_reason, len(choice.message.content.split())) == ("length", 2)


def test_a_stream(theirs: openai.OpenAI) -> None:
    images = pictures(2)
    whole = create(theirs, *images, n=2)
    stream = create(theirs, *images, n=2, stream=True, stream_options={"include_usage": True})
    texts, reasons, usage = ["", ""], [None, None], None
    for chunk in stream:
        usage = chunk.usage or usage
        for piece in chunk.choices:
            texts[piece.index] += piece.delta.content or ""
            reasons[piece.index] = piece.finish_reason
    assert texts == [choice.message.content for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert usage == whole.usage


def test_the_helper_for_streams_puts_the_answer_together(theirs: openai.OpenAI) -> None:
    with theirs.chat.completions.stream(model="fake", messages=messages(png())) as stream:
        found = stream.get_final_completion().choices[0]
    assert [found.message.content] == contents(theirs, png())


def test_fields_of_our_own_and_fields_of_theirs_that_we_ignore(theirs: openai.OpenAI) -> None:
    decode = {"name": "greedy", "options": {"max_tokens": 3}}
    [choice] = create(theirs, png(), extra_body={"decode": decode, "score": False}).choices
    assert (choice.finish_reason, choice.message.clip_scores) == ("length", None)
    ignored: dict[str, Any] = {"frequency_penalty": 1.0, "logit_bias": {"5": 10}, "user": "u", "stop": ["dog"]}
    assert contents(theirs, png(), **ignored) == contents(theirs, png())


def test_errors_are_their_exceptions(theirs: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        create(theirs, png(), model="nope")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    assert "there are: fake" in missing.value.message
    with pytest.raises(openai.BadRequestError) as empty:
        create(theirs)
    assert (empty.value.code, empty.value.type) == ("invalid_request", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as broken:
        create(theirs, b"no picture", stream=True)
    assert (broken.value.code, broken.value.param) == ("not_an_image", "messages")
    url = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}]}]
    with pytest.raises(openai.PermissionDeniedError) as refused:
        create(theirs, messages=url)
    assert refused.value.code == "url_refused"
    assert refused.value.request_id
