"""What a chat request means: which pictures, which options, which decoding."""

from typing import Any

import pytest

from models.card import Decoding
from models.decoding import parse_decode
from models.decoding.strategy import Strategy
from models.errors import RequestError
from serving.chat_inputs import options_of, pictures_of
from serving.openai_schemas import ChatMessage, ChatRequest
from serving.schemas import CaptionOptions
from serving.validation import validated

MAX_ROWS = 64
BEAM_4 = Decoding(name="beam", options={"beams": 4, "length_penalty": 2.0, "max_tokens": 30})


def request(**fields: Any) -> ChatRequest:
    return validated(ChatRequest, {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields})


def options(own: Decoding | None = None, **fields: Any) -> CaptionOptions:
    return options_of(request(**fields), own, MAX_ROWS)


def strategy(own: Decoding | None = None, **fields: Any) -> Strategy:
    """As the job has it."""
    decode = options(own, **fields).decode
    assert decode is not None
    return parse_decode({"name": decode.name, "options": decode.options, "guidance": decode.guidance})


def test_a_picture_may_be_its_address_alone() -> None:
    """As OpenAI's newer API has it."""
    alone = {"type": "image_url", "image_url": "data:,1"}
    assert pictures_of(messages(("user", [alone]))) == pictures_of(messages(("user", [picture("data:,1")])))


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def messages(*contents: tuple[str, Any]) -> list[ChatMessage]:
    return [validated(ChatMessage, {"role": role, "content": content}) for role, content in contents]


def test_the_pictures_are_those_of_the_last_user_message_in_order() -> None:
    found = pictures_of(
        messages(
            ("system", "Describe."),
            ("user", [picture("data:image/png;base64,AAAA")]),
            ("assistant", "a dog"),
            ("user", [picture("data:,1"), {"type": "text", "text": "and?"}, picture("https://example.com/2.png")]),
            ("assistant", None),
        )
    )
    assert [(image.base64, image.url) for image in found] == [("data:,1", None), (None, "https://example.com/2.png")]


@pytest.mark.parametrize(
    "conversation",
    [
        messages(("user", "What is there?")),
        messages(("user", [{"type": "text", "text": "hello"}])),
        messages(("user", [{"type": "input_audio", "input_audio": {"data": "AAAA"}}])),
        messages(("user", [picture("data:,1")]), ("user", "and now?")),
        messages(("system", [picture("data:,1")])),
        messages(("user", None)),
    ],
)
def test_without_a_picture_there_it_says_how_to_give_one(conversation: list[ChatMessage]) -> None:
    with pytest.raises(RequestError, match="messages: the last user message has no picture.*image_url.*data:") as error:
        pictures_of(conversation)
    assert error.value.code == "invalid_request"


def test_what_is_not_known_is_ignored() -> None:
    assert request(frequency_penalty=1.5, tools=[{"type": "function"}], stop=["."], user="u") == request()


def test_every_option_of_a_caption_request_is_taken_or_refused() -> None:
    """None may be ignored: it would seem to work."""
    assert CaptionOptions.model_fields.keys() <= ChatRequest.model_fields.keys()


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"temperature": 2.5}, "temperature: "),
        ({"temperature": "1"}, "temperature: "),
        ({"top_p": 1.1}, "top_p: "),
        ({"n": 0}, "n: "),
        ({"n": 129}, "n: "),
        ({"max_tokens": 0}, "max_tokens: "),
        ({"seed": 2**63}, "seed: "),
        ({"descriptiveness": 2}, "descriptiveness: "),
        ({"num_captions": 2}, "num_captions: not an option of /v1/chat/completions; give n"),
        ({"experiment": "e", "unit": "u"}, "experiment: not an option of /v1/chat/completions; ask /v1/captions; "),
        ({"min_clip_score": 0.5}, "min_clip_score: not an option of"),
        ({"decode": {"nme": "beam"}}, "decode.nme: "),
        ({"messages": []}, "messages: "),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content.parts.0: a part of"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content.text: Input should be a valid string"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], names: str) -> None:
    with pytest.raises(RequestError) as error:
        request(**fields)
    assert error.value.detail.startswith(names)


def test_null_is_as_good_as_absent() -> None:
    names = ("n", "max_tokens", "temperature", "top_p", "seed", "stream", "stream_options", "decode", "score")
    assert request(**dict.fromkeys(names)) == request()


@pytest.mark.parametrize("own", [None, BEAM_4, Decoding(name="beam", guidance=1.5), Decoding(name="greedy")])
@pytest.mark.parametrize("fields", [{}, {"temperature": 0}, {"top_p": 1}, {"seed": 3, "temperature": 0.0}])
def test_the_models_own_decoding_without_a_temperature(own: Decoding | None, fields: dict[str, Any]) -> None:
    assert strategy(own, **fields) == parse_decode(None, own)


def test_more_captions_than_the_model_decodes_take_more_beams() -> None:
    assert strategy(BEAM_4, n=4) == parse_decode(None, BEAM_4)
    assert strategy(BEAM_4, n=6).to_plain()["options"] == {
        **parse_decode(None, BEAM_4).to_plain()["options"],
        "beams": 6,
    }
    wide = strategy(Decoding(name="greedy", options={"max_tokens": 9}), n=2)
    assert wide == parse_decode({"name": "beam", "options": {"beams": 3, "max_tokens": 9}})
    assert options(BEAM_4, n=6).num_captions == 6


def test_too_many_captions_for_beams_name_the_way_out() -> None:
    with pytest.raises(RequestError, match="n: 9 captions without sampling take 9 beams, .* temperature above 0"):
        options(n=9)
    assert strategy(n=9, temperature=1).name == "sample"


def test_a_temperature_means_sampling() -> None:
    plain = strategy(BEAM_4, temperature=0.7, top_p=0.9, seed=5).to_plain()
    own = {"max_tokens": 30, "min_tokens": 0, "repetition_penalty": 1.0, "no_repeat_ngram": 0, "no_stutter": 0}
    assert plain == {"name": "sample", "options": {**own, "temperature": 0.7, "top_p": 0.9, "seed": 5, "top_k": 0}}


def test_a_top_p_below_1_means_sampling_unless_the_temperature_is_0() -> None:
    assert strategy(top_p=0.5).to_plain()["options"]["temperature"] == 1.0
    assert strategy(top_p=0.5, temperature=0).name == "beam"


def test_the_ends_of_the_ranges_of_that_api_are_taken() -> None:
    lowest = strategy(temperature=1e-9, top_p=0, seed=-(2**63)).to_plain()["options"]
    assert (lowest["temperature"], lowest["seed"]) == (0.01, 0)
    assert 0 < lowest["top_p"] < 1e-3
    assert strategy(temperature=2, seed=-1).seed == 2**63 - 1
    assert strategy(max_tokens=128_000).options.max_tokens == 512


def test_a_model_that_samples_keeps_its_own_ways() -> None:
    own = Decoding(name="sample", options={"top_k": 7, "temperature": 0.5})
    assert strategy(own, n=3, seed=2).to_plain()["options"]["top_k"] == 7
    changed = strategy(own, temperature=1.5, seed=2).to_plain()["options"]
    assert (changed["top_k"], changed["temperature"], changed["seed"]) == (7, 1.5, 2)


@pytest.mark.parametrize("fields", [{"temperature": 1}, {}, {"n": 6}])
def test_the_token_limit_has_two_names(fields: dict[str, Any]) -> None:
    own = Decoding(name="beam", options={"min_tokens": 8})
    for limit in ({"max_tokens": 5}, {"max_completion_tokens": 5}, {"max_tokens": 9, "max_completion_tokens": 5}):
        found = strategy(own, **fields, **limit).options
        assert (found.max_tokens, found.min_tokens) == (5, 5)


def test_decode_is_taken_as_it_is_and_alone() -> None:
    decode = {"name": "greedy", "options": {"max_tokens": 3}}
    found = options(decode=decode, n=2, score=False, mix={"smile": 0.5}, target_words=9, descriptiveness=0.25)
    assert found.decode is not None and found.decode.model_dump(exclude_none=True) == decode
    assert (found.model, found.num_captions, found.score) == ("m", 2, False)
    assert (found.mix, found.target_words, found.descriptiveness) == ({"smile": 0.5}, 9, 0.25)
    for field in ({"temperature": 0.5}, {"seed": 1}, {"max_tokens": 3}):
        with pytest.raises(RequestError, match=f"{next(iter(field))}: does not go with decode"):
            options(decode=decode, **field)
