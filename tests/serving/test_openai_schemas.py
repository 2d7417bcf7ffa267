"""What answers hold is what OpenAI's own client expects of them."""

from openai.types.chat import ChatCompletion as TheirCompletion
from openai.types.chat import ChatCompletionChunk as TheirChunk

from serving.openai_schemas import AnswerMessage, ChatChunk, ChatCompletion, Choice, ChunkChoice, Delta, Usage

HEAD = {"id": "chatcmpl-1", "created": 1, "model": "m", "system_fingerprint": "limner-0"}


def test_a_completion_is_one_of_theirs_in_strict_terms() -> None:
    message = AnswerMessage(content="a dog", clip_scores=[0.5], scorer="s", descriptiveness=None, expected_words=None)
    choice = Choice(index=0, message=message, finish_reason="length")
    usage = Usage(completion_tokens=3, total_tokens=3)
    ours = ChatCompletion(**HEAD, choices=[choice], usage=usage)  # type: ignore[arg-type]
    theirs = TheirCompletion.model_validate_json(ours.model_dump_json(), strict=True)
    assert theirs.choices[0].message.content == "a dog"
    assert theirs.choices[0].message.model_extra == {
        "clip_scores": [0.5],
        "scorer": "s",
        "descriptiveness": None,
        "expected_words": None,
    }


def test_so_is_a_chunk() -> None:
    for delta in (Delta(role="assistant", content=""), Delta(content="a"), Delta()):
        ours = ChatChunk(**HEAD, choices=[ChunkChoice(index=0, delta=delta, finish_reason=None)])  # type: ignore[arg-type]
        assert TheirChunk.model_validate_json(ours.model_dump_json(), strict=True).usage is None
