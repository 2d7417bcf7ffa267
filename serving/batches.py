"""Forward passes for images of different requests that may share one. Runs on the scheduler's thread."""

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from PIL.Image import Image

from models.decoding.strategy import Strategy
from models.interfaces import Caption
from models.pipeline import CaptionPipeline
from serving import metrics
from serving.points import Coefficients
from serving.reports import Reporter


@dataclass(frozen=True)
class CaptionKey:
    """Images of equal key may be captioned together; seeds and scoring are each image's own."""

    model: str
    coefficients: Coefficients | None
    group: Hashable
    num_captions: int
    rerank: bool


@dataclass(frozen=True)
class ScoreKey:
    """Images of equal key may be scored together."""

    model: str


@dataclass(frozen=True)
class Payload:
    """One opened image and what is asked about it: new captions, or the scores of given ones."""

    image: Image
    pipeline: CaptionPipeline
    """The same for all of one key."""
    strategy: Strategy | None = None
    seed: int | None = None
    score: bool = False
    captions: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Pass:
    """Stage times of one forward pass, milliseconds; images that shared the pass hold the same object."""

    encode: float = 0.0
    decode: float = 0.0
    score: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a pass gave for one image: captions, or scores of the given ones."""

    captions: tuple[Caption, ...] = ()
    clip_scores: tuple[float, ...] = ()
    timing: Pass = Pass()


class BatchRunner:
    """Runs a batch on the pipeline that its images bring and reports what it took."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def __call__(self, key: Hashable, payloads: list[Payload]) -> Sequence[Outcome]:
        """One outcome per payload, in order."""
        if isinstance(key, CaptionKey):
            return self._caption(key, payloads)
        assert isinstance(key, ScoreKey)
        return self._score(payloads)

    def _caption(self, key: CaptionKey, payloads: list[Payload]) -> list[Outcome]:
        strategy = payloads[0].strategy
        assert strategy is not None
        result = payloads[0].pipeline.caption(
            [payload.image for payload in payloads],
            strategy,
            num_captions=key.num_captions,
            seeds=[payload.seed for payload in payloads],
            score=[payload.score for payload in payloads],
            rerank=key.rerank,
        )
        timing = Pass(**result.timing_ms)
        self._report(timing, len(payloads))
        written = sum(map(len, result.captions))
        self._reporter.count(metrics.CAPTIONS, key.model, strategy.name, amount=written)
        return [Outcome(captions=tuple(found), timing=timing) for found in result.captions]

    def _score(self, payloads: list[Payload]) -> list[Outcome]:
        started = time.perf_counter()
        scores = payloads[0].pipeline.score(
            [payload.image for payload in payloads], [list(payload.captions) for payload in payloads]
        )
        timing = Pass(score=(time.perf_counter() - started) * 1000)
        self._report(timing, len(payloads))
        return [Outcome(clip_scores=tuple(found), timing=timing) for found in scores]

    def _report(self, timing: Pass, images: int) -> None:
        self._reporter.observe(metrics.BATCH_IMAGES, images)
        for stage, spent_ms in (("encode", timing.encode), ("decode", timing.decode), ("score", timing.score)):
            if spent_ms:
                self._reporter.observe(metrics.STAGE_DURATION, spent_ms / 1000, stage)
