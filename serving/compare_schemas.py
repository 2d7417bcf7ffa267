"""The JSON of ``/v1/compare``: the same images captioned in several ways."""

from pydantic import BaseModel, ConfigDict, Field

from serving.arms import FEWEST_ARMS, MOST_ARMS
from serving.schemas import HowToCaption, ImageInput, IndexedResult, TimingOut


class ArmInput(HowToCaption):
    """One of the ways to caption that are compared."""

    label: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="what the answer calls it, unlike the others; absent: made of the model and what is asked of it",
    )


class CompareOptions(BaseModel):
    """Everything that a comparison may ask besides its images."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arms: list[ArmInput] = Field(min_length=FEWEST_ARMS, max_length=MOST_ARMS)
    num_captions: int = Field(default=1, ge=1, description="captions of each image by each arm, best first")
    score: bool | None = Field(default=None, description="CLIPScore of each caption; absent: if the server can")


class CompareRequest(CompareOptions):
    """JSON form of a comparison."""

    images: list[ImageInput] = Field(
        min_length=1, description="images x arms is at most what one request to `/v1/captions` may hold"
    )


class ArmOut(BaseModel):
    """What one arm made of the images."""

    label: str = Field(description="as asked, or made of the model and what was asked of it")
    model: str = Field(description="the model that wrote the captions")
    results: list[IndexedResult] = Field(description="one per image, in the order of the request")


class CompareResponse(BaseModel):
    """Answer of `/v1/compare`."""

    id: str = Field(description="the request's `x-request-id`")
    arms: list[ArmOut] = Field(description="in the order of the request")
    timing_ms: TimingOut = Field(description="queue: the longest of the arms; encode, decode, score: their sums")
