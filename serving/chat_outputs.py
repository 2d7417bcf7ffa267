"""From captions to a chat completion, whole or as server-sent events."""

import time
from collections.abc import Iterator, Sequence

from models import __version__
from models.interfaces import Caption, FinishReason
from serving.messages import CaptionedImage, CaptionJob
from serving.openai_schemas import AnswerMessage, ChatChunk, ChatCompletion, Choice, ChunkChoice, Delta, Usage
from serving.points import Point

_DONE = "data: [DONE]\n\n"


def completion_of(job: CaptionJob, images: Sequence[CaptionedImage]) -> ChatCompletion:
    """The answer to a job whose images all have captions: choice i holds the i-th caption of each."""
    captions = [caption for image in images for caption in image.captions]
    generated = sum(caption.tokens for caption in captions)
    by_choice = zip(*(image.captions for image in images), strict=True)
    point = images[0].point  # the same for all: fallbacks are not asked for on this route
    return ChatCompletion(
        id=f"chatcmpl-{job.request_id}",
        created=int(time.time()),
        model=job.model,
        system_fingerprint=f"limner-{__version__}",
        choices=[_choice(index, chosen, point) for index, chosen in enumerate(by_choice)],
        usage=Usage(completion_tokens=generated, total_tokens=generated),
    )


def events_of(completion: ChatCompletion, *, include_usage: bool) -> Iterator[str]:
    """The server-sent events that stand for an answer: of each choice its role, its lines and its end."""
    for choice in completion.choices:
        yield _event(completion, choice.index, Delta(role="assistant", content=""))
        for line in choice.message.content.splitlines(keepends=True):
            yield _event(completion, choice.index, Delta(content=line))
        rest = Delta(**choice.message.model_dump(exclude={"role", "content", "refusal"}))
        yield _event(completion, choice.index, rest, choice.finish_reason)
    if include_usage:
        yield _data(completion, [], completion.usage)
    yield _DONE


def _choice(index: int, captions: Sequence[Caption], point: Point) -> Choice:
    scores = [caption.clip_score for caption in captions if caption.clip_score is not None]
    return Choice(
        index=index,
        message=AnswerMessage(
            content="\n".join(_one_line(caption.text) if len(captions) > 1 else caption.text for caption in captions),
            clip_scores=scores or None,
            scorer=captions[0].scorer,
            descriptiveness=point.descriptiveness,
            expected_words=point.expected_words,
        ),
        finish_reason="length" if any(caption.finish_reason == "length" for caption in captions) else "stop",
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _event(completion: ChatCompletion, index: int, delta: Delta, finish: FinishReason | None = None) -> str:
    return _data(completion, [ChunkChoice(index=index, delta=delta, finish_reason=finish)])


def _data(completion: ChatCompletion, choices: list[ChunkChoice], usage: Usage | None = None) -> str:
    chunk = ChatChunk(
        id=completion.id,
        created=completion.created,
        model=completion.model,
        system_fingerprint=completion.system_fingerprint,
        choices=choices,
        usage=usage,
    )
    return f"data: {chunk.model_dump_json()}\n\n"
