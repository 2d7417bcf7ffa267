"""A completion and its events, from captions made by hand."""

import json
from typing import Any

from models import __version__
from models.decoding import parse_decode
from models.interfaces import Caption
from serving.chat_outputs import completion_of, events_of
from serving.messages import CaptionedImage, CaptionJob
from serving.openai_schemas import ChatCompletion
from serving.points import Point

JOB = CaptionJob("r-1", "m", (b"", b""), parse_decode(None), num_captions=2)
POINT = Point(descriptiveness=0.5, expected_words=9.5)


def caption(text: str, tokens: int, finish_reason: Any = "stop", score: float | None = None) -> Caption:
    return Caption(text, -1.0, tokens, finish_reason, score, None if score is None else "clip")


def two_images() -> ChatCompletion:
    return completion_of(
        JOB,
        [
            CaptionedImage((caption("a dog", 3, score=0.5), caption("a\nred  dog", 4, score=0.4)), point=POINT),
            CaptionedImage((caption("a cat", 3, score=0.7), caption("one cat that", 3, "length", 0.6)), point=POINT),
        ],
    )


def test_a_choice_holds_a_caption_of_each_image() -> None:
    found = two_images()
    assert (found.id, found.model, found.system_fingerprint) == ("chatcmpl-r-1", "m", f"limner-{__version__}")
    assert [(choice.index, choice.message.content, choice.finish_reason) for choice in found.choices] == [
        (0, "a dog\na cat", "stop"),
        (1, "a red dog\none cat that", "length"),
    ]
    assert [choice.message.clip_scores for choice in found.choices] == [[0.5, 0.7], [0.4, 0.6]]
    assert found.choices[0].message.scorer == "clip"
    assert (found.choices[1].message.descriptiveness, found.choices[1].message.expected_words) == (0.5, 9.5)
    assert found.usage.model_dump() == {"prompt_tokens": 0, "completion_tokens": 13, "total_tokens": 13}


def test_the_text_of_one_image_is_left_alone_and_scores_may_be_absent() -> None:
    found = completion_of(JOB, [CaptionedImage((caption("two\nlines", 3),))]).choices[0]
    assert found.model_dump() == {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": "two\nlines",
            "refusal": None,
            "clip_scores": None,
            "scorer": None,
            "descriptiveness": None,
            "expected_words": None,
        },
        "logprobs": None,
        "finish_reason": "stop",
    }


def events(completion: ChatCompletion, **options: bool) -> list[dict[str, Any]]:
    *chunks, done = events_of(completion, **options)
    assert done == "data: [DONE]\n\n"
    assert all(chunk.startswith("data: {") and chunk.endswith("}\n\n") and chunk.count("\n") == 2 for chunk in chunks)
    return [json.loads(chunk[6:]) for chunk in chunks]


def test_events_add_up_to_the_answer() -> None:
    completion = two_images()
    chunks = events(completion, include_usage=False)
    assert {(chunk["id"], chunk["object"], chunk["model"], chunk["created"]) for chunk in chunks} == {
        (completion.id, "chat.completion.chunk", "m", completion.created)
    }
    assert not any("usage" in chunk for chunk in chunks)
    for choice in completion.choices:
        own = [piece for chunk in chunks for piece in chunk["choices"] if piece["index"] == choice.index]
        deltas = [piece["delta"] for piece in own]
        assert deltas[:2] == [{"role": "assistant", "content": ""}, {"content": deltas[1]["content"]}]
        assert "".join(delta.get("content", "") for delta in deltas) == choice.message.content
        assert [piece["finish_reason"] for piece in own] == [None] * 3 + [choice.finish_reason]
        assert deltas[-1]["clip_scores"] == choice.message.clip_scores
        assert (deltas[-1]["descriptiveness"], deltas[-1]["expected_words"]) == (0.5, 9.5)


def test_what_is_absent_leaves_no_null_in_the_deltas() -> None:
    chunks = events(completion_of(JOB, [CaptionedImage((caption("", 1),))]), include_usage=False)
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [{"role": "assistant", "content": ""}, {}]


def test_the_usage_comes_last_where_it_is_asked_for() -> None:
    *_, last = events(two_images(), include_usage=True)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 13)
