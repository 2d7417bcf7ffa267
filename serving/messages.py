"""What travels between the ingress and the captioner: plain values, images as encoded bytes, no torch."""

from dataclasses import dataclass

from models.decoding.strategy import Strategy
from models.interfaces import Caption
from serving.points import Point
from serving.quality import QualitySample


@dataclass(frozen=True)
class Failure:
    """An error as a value: one bad image, or a whole job, without failing its neighbours."""

    code: str
    detail: str


@dataclass(frozen=True)
class CaptionJob:
    """The images of one request, all decoded alike."""

    request_id: str
    model: str
    images: tuple[bytes | Failure, ...]
    strategy: Strategy
    num_captions: int = 1
    score: bool | None = None
    """None: when the model has a scorer."""
    point: Point = Point()
    """Where in the model's weight space."""
    rerank: bool = False
    """Whether the captions with the highest CLIPScore are given, of all that the decoding finds."""
    min_clip_score: float | None = None
    """Images whose first caption is below it are captioned again at ``fallback``."""
    fallback: Point | None = None
    trace: str | None = None
    """The ``traceparent`` of the request's span; None: nothing is recorded."""


@dataclass(frozen=True)
class ScoreJob:
    """Given captions of each image, to be scored."""

    request_id: str
    model: str
    images: tuple[bytes | Failure, ...]
    captions: tuple[tuple[str, ...], ...]
    trace: str | None = None
    """As in ``CaptionJob``."""


def images_to_do(job: CaptionJob | ScoreJob) -> int:
    """How many images of a job came through: the others failed before."""
    return sum(isinstance(data, bytes) for data in job.images)


@dataclass(frozen=True)
class CaptionedImage:
    """What came of one image."""

    captions: tuple[Caption, ...] = ()
    notes: tuple[str, ...] = ()
    error: Failure | None = None
    point: Point = Point()
    """Where the captions come from."""
    fallback: bool = False
    """Whether they took the place of captions below ``min_clip_score``."""


@dataclass(frozen=True)
class SampledImage:
    """An encoded image and what was captioned, to be scored off the request path."""

    data: bytes
    sample: QualitySample


@dataclass(frozen=True)
class ScoredImage:
    """CLIPScores of one image, in the order of its captions."""

    clip_scores: tuple[float, ...] = ()
    scorer: str | None = None
    error: Failure | None = None


@dataclass(frozen=True)
class Timing:
    """Where the time of one request went, milliseconds. ``queue`` is the longest wait of its images; the stages
    are sums over the forward passes that its images took part in."""

    queue: float = 0.0
    encode: float = 0.0
    decode: float = 0.0
    score: float = 0.0


@dataclass(frozen=True)
class CaptionReply:
    """The answer to a CaptionJob, image by image."""

    results: tuple[CaptionedImage, ...]
    timing_ms: Timing


@dataclass(frozen=True)
class ScoreReply:
    """The answer to a ScoreJob, image by image."""

    results: tuple[ScoredImage, ...]
