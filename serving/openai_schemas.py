"""The JSON of OpenAI's chat API, as far as limner takes part in it."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from models.interfaces import FinishReason
from serving.schemas import MOST_WORDS, DecodeInput

_OURS = "not part of OpenAI's API"
_AS_THERE = f"as in `/v1/captions`; {_OURS}"
_NOT_HERE = "refused: only `/v1/captions` has it"
_LAST = "as in an answer; in the last chunk of a choice"


def _is_none(value: object) -> bool:
    return value is None


class _Request(BaseModel):
    """What the API does not know, or limner does not need, is ignored, as there."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ImageUrl(_Request):
    """Where a picture is."""

    url: str = Field(
        description="a base64 data URI, or an http(s) address, fetched where the server allows it, else `url_refused`"
    )


def _of_text(value: object) -> object:
    """OpenAI's newer API has the address itself there."""
    return {"url": value} if isinstance(value, str) else value


class ContentPart(_Request):
    """A piece of a message; only pictures count."""

    type: str = Field(description="`image_url`; `text` and all others are ignored: the models take no instructions")
    image_url: Annotated[ImageUrl | None, BeforeValidator(_of_text)] = Field(
        default=None, description="the picture of an `image_url` part; its address alone will do"
    )

    @model_validator(mode="after")
    def _a_picture_has_a_url(self) -> Self:
        if self.type == "image_url" and self.image_url is None:
            raise ValueError("a part of type image_url needs the field image_url")
        return self


def _form(content: object) -> str:
    return "parts" if isinstance(content, list) else "text"


# Told apart by form, so that a refusal speaks of one form only.
_Content = Annotated[Annotated[str, Tag("text")] | Annotated[list[ContentPart], Tag("parts")], Discriminator(_form)]


class ChatMessage(_Request):
    """One message of the conversation."""

    role: str = Field(description="only the last message of the role `user` counts")
    content: _Content | None = Field(default=None, description="pictures are given as parts")


class StreamOptions(_Request):
    """How to stream."""

    include_usage: bool | None = Field(default=None, description="whether a last chunk tells the usage")


def _refused(instead: str) -> BeforeValidator:
    """For an option of `/v1/captions` that has no place here: ignored, it would seem to work."""

    def refuse(value: object) -> None:
        if value is not None:
            raise ValueError(f"not an option of /v1/chat/completions; {instead}")

    return BeforeValidator(refuse)


_OnlyCaptions = Annotated[None, _refused("ask /v1/captions")]


class ChatRequest(_Request):
    """A request to `/v1/chat/completions`. Fields of that API which are not listed here are ignored."""

    model: str = Field(description="an id of `/v1/models`")
    messages: list[ChatMessage] = Field(
        min_length=1, description="the pictures of the last user message are captioned, one caption per line"
    )
    n: int | None = Field(
        default=None,
        ge=1,
        le=128,
        description="choices, best first; `num_captions` of `/v1/captions`. Where the model's own decoding cannot give "
        "as many, a beam search with as many beams does",
    )
    max_tokens: int | None = Field(default=None, ge=1, description="older name of max_completion_tokens")
    max_completion_tokens: int | None = Field(
        default=None, ge=1, description="most tokens of each caption of a picture, the end token included; 512 at most"
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="above 0: captions are sampled; 0 or absent: the model's own decoding"
    )
    top_p: float | None = Field(
        default=None, ge=0, le=1, description="share of the probability to sample from; below 1 it asks for sampling"
    )
    seed: int | None = Field(
        default=None, ge=-(2**63), lt=2**63, description="of sampling: the same captions for the same request"
    )
    stream: bool | None = Field(default=None, description="whether to answer with server-sent events")
    stream_options: StreamOptions | None = Field(default=None, description="only with stream")
    descriptiveness: float | None = Field(default=None, ge=0, le=1, description=_AS_THERE)
    mix: dict[str, float] | None = Field(default=None, description=_AS_THERE)
    target_words: int | None = Field(default=None, ge=1, le=MOST_WORDS, description=_AS_THERE)
    decode: DecodeInput | None = Field(
        default=None, description=f"in place of temperature, top_p, seed and max_tokens; {_AS_THERE}"
    )
    score: bool | None = Field(default=None, description=_AS_THERE)
    num_captions: Annotated[None, _refused("give n")] = Field(default=None, description="refused: here it is `n`")
    min_clip_score: _OnlyCaptions = Field(default=None, description=_NOT_HERE)
    experiment: _OnlyCaptions = Field(default=None, description=_NOT_HERE)
    unit: _OnlyCaptions = Field(default=None, description=_NOT_HERE)

    @property
    def most_tokens(self) -> int | None:
        """The limit under either of its names."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class AnswerMessage(BaseModel):
    """The captions of one choice."""

    role: Literal["assistant"] = Field(default="assistant", description="part of OpenAI's shape")
    content: str = Field(description="one caption per picture, one per line, in the order of the pictures")
    refusal: None = Field(default=None, description="part of OpenAI's shape")
    clip_scores: list[float] | None = Field(
        description=f"CLIPScore of each picture and its caption; null where not asked for; {_OURS}"
    )
    scorer: str | None = Field(description=f"what clip_scores were measured with; {_OURS}")
    descriptiveness: float | None = Field(description=f"where on the model's spectrum; {_OURS}")
    expected_words: float | None = Field(description=f"mean words at this descriptiveness; {_OURS}")


class Choice(BaseModel):
    """One of the `n` answers."""

    index: int = Field(description="from 0, best first")
    message: AnswerMessage = Field(description="the captions")
    logprobs: None = Field(default=None, description="part of OpenAI's shape; never given")
    finish_reason: FinishReason = Field(description="`length` when a caption was cut at the token limit, else `stop`")


class Usage(BaseModel):
    """Tokens of the whole request."""

    prompt_tokens: int = Field(default=0, description="always 0: pictures are not tokens here, and text is not read")
    completion_tokens: int = Field(description="generated tokens of all choices, the end tokens included")
    total_tokens: int = Field(description="the sum")


class _Completion(BaseModel):
    id: str = Field(description="`chatcmpl-` and the request's `x-request-id`")
    created: int = Field(description="seconds since 1970")
    model: str = Field(description="the model that wrote the captions")
    system_fingerprint: str = Field(description="the server's version")


class ChatCompletion(_Completion):
    """Answer of `/v1/chat/completions`."""

    object: Literal["chat.completion"] = Field(default="chat.completion", description="part of OpenAI's shape")
    choices: list[Choice] = Field(description="as many as `n`")
    usage: Usage = Field(description="tokens of the whole request")


class Delta(BaseModel):
    """What a chunk adds to a message; absent fields add nothing."""

    role: Literal["assistant"] | None = Field(
        default=None, exclude_if=_is_none, description="in the first chunk of a choice"
    )
    content: str | None = Field(default=None, exclude_if=_is_none, description="text to be appended")
    clip_scores: list[float] | None = Field(default=None, exclude_if=_is_none, description=_LAST)
    scorer: str | None = Field(default=None, exclude_if=_is_none, description=_LAST)
    descriptiveness: float | None = Field(default=None, exclude_if=_is_none, description=_LAST)
    expected_words: float | None = Field(default=None, exclude_if=_is_none, description=_LAST)


class ChunkChoice(BaseModel):
    """A piece of one choice."""

    index: int = Field(description="of the choice")
    delta: Delta = Field(description="what it adds")
    logprobs: None = Field(default=None, description="part of OpenAI's shape; never given")
    finish_reason: FinishReason | None = Field(default=None, description="in the last chunk of a choice")


class ChatChunk(_Completion):
    """One server-sent event of a streamed answer; the text `[DONE]` ends the stream."""

    object: Literal["chat.completion.chunk"] = Field(
        default="chat.completion.chunk", description="part of OpenAI's shape"
    )
    choices: list[ChunkChoice] = Field(description="one piece; none in the chunk that tells the usage")
    usage: Usage | None = Field(
        default=None, exclude_if=_is_none, description="in the last chunk, where it was asked for"
    )


class OpenAIErrorDetail(BaseModel):
    """What went wrong."""

    message: str = Field(description="what was wrong with which input, and what would be right")
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"] = Field(description="whose fault it is")
    param: str | None = Field(description="the field of the request that the message is about")
    code: str = Field(description="stable; `model_not_found`, `rate_limit_exceeded`, else limner's own")


class OpenAIError(BaseModel):
    """The body of an answer that is not a success, on the routes of OpenAI's API."""

    error: OpenAIErrorDetail = Field(description="what went wrong")
