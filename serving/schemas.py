"""The JSON of the HTTP interface: what a request may hold, what an answer holds."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from models.card import MAX_GUIDANCE, DataSource, Measurement
from models.interfaces import FinishReason


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ImageInput(_Request):
    """One image: exactly one of its fields."""

    base64: str | None = Field(default=None, description="the encoded image as base64, or a base64 data URI")
    url: str | None = Field(default=None, description="refused (`url_refused`) unless the server allows it")

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
    rerank: Literal["clip_score"] | None = None


class CaptionOptions(_Request):
    """Everything that a caption request may ask besides its images."""

    model: str | None = Field(default=None, description="an id of `/v1/models`; the server's default when absent")
    descriptiveness: float | None = Field(default=None, ge=0, le=1)
    mix: dict[str, float] | None = None
    target_words: int | None = Field(default=None, ge=1)
    decode: DecodeInput | None = Field(default=None, description="the model's own default when absent")
    num_captions: int = Field(default=1, ge=1, description="captions of each image, best first")
    score: bool | None = Field(default=None, description="CLIPScore of each caption; absent: if the server can")
    min_clip_score: float | None = None
    experiment: str | None = None
    unit: str | None = None


class CaptionRequest(CaptionOptions):
    """JSON form of a caption request."""

    images: list[ImageInput] = Field(min_length=1)


class ScoreRequest(_Request):
    """Captions to be scored against their images."""

    images: list[ImageInput] = Field(min_length=1)
    captions: list[list[str]] = Field(description="the captions of each image, as many lists as images")
    model: str | None = None

    @model_validator(mode="after")
    def _as_many_lists_as_images(self) -> Self:
        if len(self.captions) != len(self.images):
            raise ValueError(f"{len(self.images)} images but {len(self.captions)} lists of captions")
        return self


class ItemError(BaseModel):
    """Why one image has no answer."""

    code: str
    detail: str


class CaptionOut(BaseModel):
    """One caption."""

    text: str
    logprob: float = Field(
        description="mean log-probability per generated token, under the model itself or its guided distribution"
    )
    tokens: int
    finish_reason: FinishReason
    clip_score: float | None
    scorer: str | None = Field(description="what clip_score was measured with; scores compare only under one scorer")


class ExperimentOut(BaseModel):
    """The arm that a result belongs to."""

    name: str
    arm: str


class ResultOut(BaseModel):
    """What became of one image, apart from which image it was."""

    captions: list[CaptionOut]
    descriptiveness: float | None = None
    expected_words: float | None = None
    fallback: bool = False
    experiment: ExperimentOut | None = None
    notes: list[str]
    error: ItemError | None


class _Position(BaseModel):
    index: int


class IndexedResult(ResultOut, _Position):
    """A result and the position of its image in the request."""


class TimingOut(BaseModel):
    """Milliseconds."""

    queue: float = Field(description="longest wait of an image for its forward pass")
    encode: float
    decode: float
    score: float
    total: float


class CaptionResponse(BaseModel):
    """Answer of `/v1/captions`."""

    id: str
    model: str
    results: list[IndexedResult]
    timing_ms: TimingOut


class ScoreResult(BaseModel):
    """CLIPScores of one image's captions, in their order."""

    index: int
    clip_scores: list[float]
    scorer: str | None
    error: ItemError | None


class ScoreResponse(BaseModel):
    """Answer of `/v1/score`."""

    id: str
    model: str
    results: list[ScoreResult]


class ModelOut(BaseModel):
    """One served model."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="seconds since 1970")
    owned_by: str = "limner"
    default: bool
    description: str
    family: str
    licence: str
    objective: str | None
    lambda_: float | None = Field(serialization_alias="lambda", description="the objective's weight of the MLE loss")
    spectrum: None = Field(default=None, description="no served model has one yet")
    data: list[DataSource]
    measurements: list[Measurement]


class ModelList(BaseModel):
    """Answer of `/v1/models`, in OpenAI's list shape."""

    object: Literal["list"] = "list"
    data: list[ModelOut]


class Status(BaseModel):
    """Answer of the probes."""

    status: str
