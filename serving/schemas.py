"""The JSON of the HTTP interface: what a request may hold, what an answer holds."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from models.card import MAX_GUIDANCE, Calibration, DataSource, Measurement, SpectrumPoint
from models.interfaces import FinishReason

_MOST_CHARS = 10_000  # of a caption to be scored; a scorer reads a few hundred
MOST_WORDS = 10_000  # far beyond any caption
_ONE_OF = "at most one of descriptiveness, mix and target_words"
_SPECTRUM = f"only models with a spectrum; {_ONE_OF}"


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_EXACTLY_ONE: dict[str, Any] = {
    "oneOf": [
        {"required": ["base64"], "properties": {"base64": {"type": "string"}, "url": {"type": "null"}}},
        {"required": ["url"], "properties": {"url": {"type": "string"}, "base64": {"type": "null"}}},
    ]
}


class ImageInput(_Request):
    """One image: exactly one of its fields."""

    model_config = ConfigDict(json_schema_extra=_EXACTLY_ONE)

    base64: str | None = Field(default=None, description="the encoded image as base64, or a base64 data URI")
    url: str | None = Field(
        default=None,
        description="an http(s) address on the public internet, fetched where the server allows it, else refused "
        "(`url_refused`); what cannot be fetched is `url_failed`",
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.base64 is None) == (self.url is None):
            raise ValueError("give exactly one of base64 and url")
        return self


class DecodeInput(_Request):
    """A decoding strategy and its options; where neither is given, the model's own."""

    name: str | None = Field(
        default=None, description="greedy, beam, diverse_beam or sample; beam where only options are given"
    )
    options: dict[str, Any] | None = Field(
        default=None, description="the strategy's own, such as `beams` or `temperature`"
    )
    guidance: float | None = Field(
        default=None,
        ge=0,
        le=MAX_GUIDANCE,
        description="classifier-free: above 1 the picture counts for more; only models with a null memory",
    )
    rerank: Literal["clip_score"] | None = Field(
        default=None,
        description="of all captions that the decoding finds (all beams; five samples), those with the best CLIPScore",
    )


class HowToCaption(_Request):
    """Which model captions, where in its weight space, and how it decodes."""

    model: str | None = Field(default=None, description="an id of `/v1/models`; the server's default when absent")
    descriptiveness: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description=f"0 concise to 1 descriptive, rounded to the model's grid; absent: its default; {_SPECTRUM}",
    )
    mix: dict[str, float] | None = Field(
        default=None, description=f"how far to go along each direction; only models with directions; {_ONE_OF}"
    )
    target_words: int | None = Field(
        default=None,
        ge=1,
        le=MOST_WORDS,
        description=f"the descriptiveness with this mean length, as calibrated; {_SPECTRUM}",
    )
    decode: DecodeInput | None = Field(default=None, description="the model's own default when absent")


class CaptionOptions(HowToCaption):
    """Everything that a caption request may ask besides its images."""

    num_captions: int = Field(default=1, ge=1, description="captions of each image, best first")
    score: bool | None = Field(default=None, description="CLIPScore of each caption; absent: if the server can")
    min_clip_score: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="images whose best caption is below it get the most concise instead, with `fallback`; only models "
        "with a spectrum",
    )
    experiment: str | None = Field(default=None, description="the experiment that assigns the model; needs `unit`")
    unit: str | None = Field(
        default=None,
        description="who is assigned, such as a user id: the same unit always gets the same arm; "
        "without `experiment` it changes nothing",
    )


class CaptionRequest(CaptionOptions):
    """JSON form of a caption request."""

    images: list[ImageInput] = Field(min_length=1)


class ScoreRequest(_Request):
    """Captions to be scored against their images."""

    images: list[ImageInput] = Field(min_length=1)
    captions: list[list[Annotated[str, Field(max_length=_MOST_CHARS)]]] = Field(
        description=f"the captions of each image, as many lists as images; each of at most {_MOST_CHARS} characters"
    )
    model: str | None = Field(
        default=None, description="the served model whose scorer measures; the server's default when absent"
    )

    @model_validator(mode="after")
    def _as_many_lists_as_images(self) -> Self:
        if len(self.captions) != len(self.images):
            raise ValueError(f"{len(self.images)} images but {len(self.captions)} lists of captions")
        return self


class VoteRequest(_Request):
    """What somebody thinks of one result of `/v1/captions`; a later vote on it takes its place."""

    request_id: str = Field(pattern=r"^[A-Za-z0-9._:+/=-]{1,128}$", description="`id` of the answer")
    index: int = Field(ge=0, lt=100_000, description="`index` of the result")
    arm: str = Field(min_length=1, max_length=64, description="`experiment.arm` of the result")
    value: Literal[1, -1] = Field(description="1: good, -1: bad")

    @field_validator("value", mode="before")
    @classmethod
    def _is_a_number(cls, value: Any) -> Any:
        if isinstance(value, bool):  # true equals 1, for Python
            raise ValueError("give 1 or -1")
        return value


class ItemError(BaseModel):
    """Why one image has no answer."""

    code: str = Field(description="stable, for programs")
    detail: str = Field(description="what was wrong and what to do, for people")


class CaptionOut(BaseModel):
    """One caption."""

    text: str
    logprob: float = Field(
        description="mean log-probability per generated token, under the model itself or its guided distribution"
    )
    tokens: int = Field(description="generated tokens, the end token included")
    finish_reason: FinishReason = Field(description="`stop`: the model ended it; `length`: cut at the token limit")
    clip_score: float | None = Field(description="2.5 max(cos, 0) of picture and caption; null where not asked for")
    scorer: str | None = Field(description="what clip_score was measured with; scores compare only under one scorer")


class ExperimentOut(BaseModel):
    """The arm that a result belongs to."""

    name: str
    arm: str = Field(description="the label of the arm that was assigned")


class ResultOut(BaseModel):
    """What became of one image, apart from which image it was."""

    captions: list[CaptionOut] = Field(description="best first; empty where there is an error")
    descriptiveness: float | None = Field(
        default=None,
        description="where on the spectrum the captions come from; null: the model has none, or a mix was asked for",
    )
    expected_words: float | None = Field(
        default=None, description="mean words at this descriptiveness, as calibrated; null: unknown"
    )
    fallback: bool = Field(default=False, description="whether a concise caption took the place of a bad one")
    experiment: ExperimentOut | None = Field(default=None, description="null: the request took part in none")
    notes: list[str] = Field(description="what was done to the picture to read it")
    error: ItemError | None = Field(description="why this image has no captions; the others are not affected")


class _Position(BaseModel):
    index: int = Field(description="of the image in the request, from 0")


class IndexedResult(ResultOut, _Position):
    """A result and the position of its image in the request."""


class TimingOut(BaseModel):
    """Milliseconds."""

    queue: float = Field(description="longest wait of an image for its forward pass")
    encode: float = Field(description="pictures to image memory, for all that shared the forward passes")
    decode: float = Field(description="the search for captions, likewise")
    score: float = Field(description="CLIPScores, likewise")
    total: float = Field(description="from the head of the request to its answer")


class CaptionResponse(BaseModel):
    """Answer of `/v1/captions`."""

    id: str = Field(description="the request's `x-request-id`")
    model: str = Field(description="the model that wrote the captions")
    results: list[IndexedResult] = Field(description="one per image, in the order of the request")
    timing_ms: TimingOut


class ScoreResult(BaseModel):
    """CLIPScores of one image's captions, in their order."""

    index: int = Field(description="of the image in the request, from 0")
    clip_scores: list[float]
    scorer: str | None = Field(description="scores compare only under one scorer")
    error: ItemError | None = Field(description="why this image has no scores; the others are not affected")


class ScoreResponse(BaseModel):
    """Answer of `/v1/score`."""

    id: str = Field(description="the request's `x-request-id`")
    model: str
    results: list[ScoreResult] = Field(description="one per image, in the order of the request")


class SpectrumOut(BaseModel):
    """A dial from concise to descriptive."""

    default: float = Field(description="the descriptiveness of who asks for none")
    grid: list[SpectrumPoint] = Field(description="by descriptiveness; with what calibration measured")
    calibration: Calibration | None = Field(description="what it was measured on; null: it was not")


class ModelOut(BaseModel):
    """One served model."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="part of OpenAI's shape; always 0, since cards hold no dates")
    owned_by: str = "limner"
    default: bool
    description: str
    family: str
    licence: str
    objective: str | None
    lambda_: float | None = Field(serialization_alias="lambda", description="the objective's weight of the MLE loss")
    directions: list[str] = Field(description="what `mix` may name; empty: it cannot be mixed")
    spectrum: SpectrumOut | None = Field(description="what `descriptiveness` moves along; null: the model has none")
    data: list[DataSource]
    measurements: list[Measurement]


class AddModelRequest(BaseModel):
    """Body of `POST /v1/admin/models`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1, max_length=255, description="the id: a folder's name in the models folder")


class ModelList(BaseModel):
    """Answer of `/v1/models`, in OpenAI's list shape."""

    object: Literal["list"] = "list"
    data: list[ModelOut]


class Status(BaseModel):
    """Answer of the probes."""

    status: str
