"""The work on images of different requests that share a turn of a model. Runs on the scheduler's thread."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL.Image import Image

from models.caption_session import Ask, Captioned, Manner
from models.interfaces import Caption
from models.pipeline import CaptionPipeline
from serving import metrics
from serving.reports import Reporter
from serving.turns import Turn

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class CaptionKey:
    """Images of equal key may be captioned together, each in its own manner."""

    model: str
    pipeline: CaptionPipeline
    """The model at one point of its weight space, in one version: each is equal to itself alone."""


@dataclass(frozen=True)
class ScoreKey:
    """Images of equal key may be scored together."""

    model: str


@dataclass(frozen=True)
class Payload:
    """One opened image and what is asked about it: new captions, or the scores of given ones."""

    image: Image | None
    """None: its features are known, and nothing else of it is needed."""
    pipeline: CaptionPipeline
    """The same for all of one key."""
    manner: Manner | None = None
    """None: scores of given captions."""
    seed: int | None = None
    score: bool = False
    captions: tuple[str, ...] = ()
    pixels: "torch.Tensor | None" = None
    """What the captioner's ``preprocess`` made of the image."""
    features: "torch.Tensor | None" = None
    """What its encoder made of it a moment ago."""
    remember: "Callable[[torch.Tensor], None] | None" = None
    """Told the features where they were not known."""


@dataclass(frozen=True)
class Pass:
    """Where the time of one image went, milliseconds, and with whom it shared it."""

    encode: float = 0.0
    decode: float = 0.0
    score: float = 0.0
    turn: int = 0
    """A number that images of the same turn have in common."""
    part: int = 0
    """The same for those that were encoded together within the turn."""


@dataclass(frozen=True)
class Outcome:
    """What came of one image: captions, or scores of the given ones."""

    captions: tuple[Caption, ...] = ()
    clip_scores: tuple[float, ...] = ()
    timing: Pass = Pass()


def stages_ms(passes: Iterable[Pass]) -> Pass:
    """What the images of one request took together: what they shared counts once, and of the steps of one turn those
    of the image that needed most."""
    encoded = {(each.turn, each.part): each.encode for each in passes}
    decoded: dict[int, float] = {}
    scored: dict[int, set[float]] = {}
    for each in passes:
        decoded[each.turn] = max(decoded.get(each.turn, 0.0), each.decode)
        scored.setdefault(each.turn, set()).add(each.score)
    return Pass(sum(encoded.values()), sum(decoded.values()), sum(map(sum, scored.values())))


class BatchRunner:
    """Works on the images of a turn by the pipeline that they bring and reports what it took."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._turns = 0

    def __call__(self, turn: Turn[Payload, Outcome]) -> None:
        """Answer every image of the turn."""
        self._turns += 1
        if isinstance(turn.key, CaptionKey):
            self._caption(turn.key, turn)
        else:
            assert isinstance(turn.key, ScoreKey)
            self._score(turn)

    def _caption(self, key: CaptionKey, turn: Turn[Payload, Outcome]) -> None:
        payloads = turn.payloads
        company = _Company(turn, self._turns, self._reporter, key.model)
        company.report_part(len(payloads))
        key.pipeline.caption_asks([_ask(payload) for payload in payloads], company)
        company.report_decoding()

    def _score(self, turn: Turn[Payload, Outcome]) -> None:
        payloads = turn.payloads
        started = time.perf_counter()
        images = [payload.image for payload in payloads if payload.image is not None]
        scores = payloads[0].pipeline.score(images, [list(payload.captions) for payload in payloads])
        timing = Pass(score=(time.perf_counter() - started) * 1000, turn=self._turns)
        self._reporter.observe(metrics.BATCH_IMAGES, len(payloads))
        self._reporter.observe(metrics.STAGE_DURATION, timing.score / 1000, "score")
        for number, found in enumerate(scores):
            turn.finish(number, Outcome(clip_scores=tuple(found), timing=timing))


def _ask(payload: Payload) -> Ask:
    assert payload.manner is not None
    return Ask(
        payload.manner,
        payload.image,
        payload.pixels,
        payload.features,
        payload.remember,
        seed=payload.seed,
        score=payload.score,
    )


class _Company:
    """The images of a turn as a pipeline asks for them (``models.caption_session.Company``)."""

    def __init__(self, turn: Turn[Payload, Outcome], number: int, reporter: Reporter, model: str) -> None:
        self._turn, self._number, self._reporter, self._model = turn, number, reporter, model
        self._parts: set[int] = set()
        self._scored_ms = self._decode_ms = 0.0

    def joining(self, under_way: int) -> list[Ask]:
        payloads = self._turn.joining() if under_way else []
        if payloads:
            self.report_part(len(payloads))
        return [_ask(payload) for payload in payloads]

    def leaving(self) -> list[int]:
        return self._turn.leaving()

    def done(self, number: int, result: Captioned) -> None:
        timing = Pass(result.encode_ms, result.decode_ms, result.score_ms, self._number, result.part)
        if result.part not in self._parts:
            self._parts.add(result.part)
            self._observe("encode", result.encode_ms)
        if result.score_ms != self._scored_ms:  # once for all that were scored together
            self._scored_ms = result.score_ms
            self._observe("score", result.score_ms)
        self._decode_ms = max(self._decode_ms, result.decode_ms)
        manner = self._turn.under_way[number].payload.manner
        assert manner is not None
        self._reporter.count(metrics.CAPTIONS, self._model, manner.strategy.name, amount=len(result.captions))
        self._turn.finish(number, Outcome(captions=result.captions, timing=timing))

    def report_part(self, images: int) -> None:
        """Count a forward pass of the encoder."""
        self._reporter.observe(metrics.BATCH_IMAGES, images)

    def report_decoding(self) -> None:
        """Tell what the image that needed most steps took."""
        self._observe("decode", self._decode_ms)

    def _observe(self, stage: str, spent_ms: float) -> None:
        if spent_ms:
            self._reporter.observe(metrics.STAGE_DURATION, spent_ms / 1000, stage)
