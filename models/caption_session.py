"""Pictures that are captioned together for as long as each needs: encoded in parts, decoded in one session, scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from PIL.Image import Image

from models.decoding.session import DecodeSession
from models.decoding.strategy import Strategy
from models.families.base import TorchCaptioner
from models.interfaces import Caption, Captioner, Hypothesis

if TYPE_CHECKING:
    from models.pipeline import CaptionPipeline

_SCORED_TOGETHER = 8
"""Captioned pictures that are worth a pass of the scorer while others are still under way."""


@dataclass(frozen=True)
class Ask:
    """One picture that is to be captioned."""

    image: Image | None
    """None: its features are known, and it is not scored."""
    pixels: torch.Tensor | None = None
    """What ``preprocess`` makes of it, where that is done already."""
    features: torch.Tensor | None = None
    """What ``encode_stem`` made of it a moment ago."""
    remember: Callable[[torch.Tensor], None] | None = None
    """Told the features where they were not known."""
    seed: int | None = None
    prompt: str = ""
    score: bool = False


@dataclass(frozen=True)
class Captioned:
    """Captions of one picture, best first, and what they took, milliseconds."""

    captions: tuple[Caption, ...]
    encode_ms: float
    """Of all pictures that were encoded with it."""
    decode_ms: float
    """Of all steps that it took part in, the first among them."""
    score_ms: float
    part: int
    """Pictures that were encoded together have the same number."""


class Company(Protocol):
    """The others who want their pictures captioned alike, asked between steps. Pictures have numbers that count from 0
    in the order in which they came."""

    def joining(self, under_way: int) -> Sequence[Ask]:
        """Pictures that join now, where so many are under way and the captioner can take more."""

    def leaving(self) -> Collection[int]:
        """Numbers of pictures that nobody waits for any more."""

    def done(self, number: int, result: Captioned) -> None:
        """Take what became of a picture."""


@dataclass(eq=False)
class _UnderWay:
    ask: Ask
    part: int
    encode_ms: float
    decoded_before_ms: float
    captions: list[Caption] | None = None
    decode_ms: float = 0.0


class CaptionSession:
    """The pictures of one strategy that are under way in one pipeline. Not for several threads."""

    def __init__(
        self, pipeline: CaptionPipeline, strategy: Strategy, *, num_captions: int = 1, rerank: bool = False
    ) -> None:
        """``rerank``: give the ``num_captions`` with the highest CLIPScore of all candidates. Raises as
        ``DecodeSession`` does."""
        strategy.rows(num_captions)  # refuses more captions than the strategy can give
        self._pipeline, self._rerank, self._kept = pipeline, rerank, num_captions
        found = strategy.candidates(num_captions) if rerank else num_captions
        self._decoding = DecodeSession(pipeline.captioner, strategy, found)
        self._under_way: dict[int, _UnderWay] = {}
        self._unscored: list[int] = []
        self._parts = 0
        self.decode_ms = self.score_ms = 0.0
        """What all steps and all scoring took so far."""

    @property
    def images(self) -> int:
        """How many pictures are under way."""
        return len(self._under_way)

    @property
    def takes_more(self) -> bool:
        """Whether pictures may be added now."""
        return self._decoding.takes_more

    def add(self, asks: Sequence[Ask]) -> float:
        """Encode these pictures, which are then under way; returns what that took, milliseconds."""
        captioner = self._pipeline.captioner
        began = time.perf_counter()
        memory = _encode(captioner, asks)
        encode_ms = (time.perf_counter() - began) * 1000
        decoded_before_ms = self.decode_ms
        began = time.perf_counter()
        numbers = self._decoding.add(
            memory, batch=len(asks), prompts=[ask.prompt for ask in asks], seeds=[ask.seed for ask in asks]
        )
        self.decode_ms += (time.perf_counter() - began) * 1000
        for number, ask in zip(numbers, asks, strict=True):
            self._under_way[number] = _UnderWay(ask, self._parts, encode_ms, decoded_before_ms)
        self._parts += 1
        return encode_ms

    def step(self) -> dict[int, Captioned]:
        """One token more for each picture; those that are done leave. Scores are computed for several together."""
        began = time.perf_counter()
        found = self._decoding.step() if self._decoding.images else {}
        done = {number: [self._read(each) for each in hypotheses] for number, hypotheses in found.items()}
        self.decode_ms += (time.perf_counter() - began) * 1000
        for number, captions in done.items():
            picture = self._under_way[number]
            picture.captions, picture.decode_ms = captions, self.decode_ms - picture.decoded_before_ms
        waiting = [number for number in done if self._under_way[number].ask.score or self._rerank]
        self._unscored += waiting
        ready = {number: self._leave(number) for number in done if number not in waiting}
        if self._unscored and (len(self._unscored) >= _SCORED_TOGETHER or not self._decoding.images):
            ready |= self._score()
        return ready

    def drop(self, numbers: Collection[int]) -> None:
        """Give up these pictures, where they are under way."""
        self._decoding.drop(numbers)
        self._unscored = [number for number in self._unscored if number not in numbers]
        for number in numbers:
            self._under_way.pop(number, None)

    def _leave(self, number: int, score_ms: float = 0.0) -> Captioned:
        picture = self._under_way.pop(number)
        assert picture.captions is not None
        return Captioned(tuple(picture.captions), picture.encode_ms, picture.decode_ms, score_ms, picture.part)

    def _score(self) -> dict[int, Captioned]:
        """Those that wait for their scores, with scores."""
        began = time.perf_counter()
        numbers, self._unscored = self._unscored, []
        pictures = [self._under_way[number] for number in numbers]
        texts = [[caption.text for caption in picture.captions or ()] for picture in pictures]
        images = [picture.ask.image for picture in pictures]
        assert all(image is not None for image in images)
        scores = self._pipeline.score(images, texts)  # type: ignore[arg-type]
        for picture, values in zip(pictures, scores, strict=True):
            scored = [
                replace(caption, clip_score=value, scorer=self._pipeline.scorer_id)
                for caption, value in zip(picture.captions or (), values, strict=True)
            ]
            if self._rerank:
                scored = sorted(scored, key=_clip_score, reverse=True)[: self._kept]
            picture.captions = scored
        score_ms = (time.perf_counter() - began) * 1000
        self.score_ms += score_ms
        return {number: self._leave(number, score_ms) for number in numbers}

    def _read(self, hypothesis: Hypothesis) -> Caption:
        ended = hypothesis.finish_reason == "stop"
        return Caption(
            text=self._pipeline.captioner.detokenize(hypothesis.tokens),
            logprob=hypothesis.logprob,
            tokens=len(hypothesis.tokens) + ended,
            finish_reason=hypothesis.finish_reason,
        )


def _encode(captioner: Captioner, asks: Sequence[Ask]) -> Any:
    """The memory of all pictures; those whose features are known are not encoded again."""
    if all(ask.features is None and ask.remember is None for ask in asks):
        return captioner.encode(_pixels(captioner, asks))
    assert isinstance(captioner, TorchCaptioner)
    fresh = [ask for ask in asks if ask.features is None]
    encoded = iter(captioner.encode_stem(_pixels(captioner, fresh)) if fresh else ())
    features = [next(encoded) if ask.features is None else ask.features for ask in asks]
    for ask, found in zip(asks, features, strict=True):
        if ask.features is None and ask.remember is not None:
            ask.remember(found.clone())  # not a part of the batch, all of which it would keep
    return captioner.encode_from_stem(torch.stack(features))


def _pixels(captioner: Captioner, asks: Sequence[Ask]) -> torch.Tensor:
    """(B, C, H, W), pinned where a GPU will fetch them."""
    pixels = _prepared(captioner, asks)
    if not isinstance(captioner, TorchCaptioner) or captioner.device.type != "cuda":
        return torch.stack(pixels)
    pinned = torch.empty(len(pixels), *pixels[0].shape, dtype=pixels[0].dtype, pin_memory=True)
    return torch.stack(pixels, out=pinned)


def _prepared(captioner: Captioner, asks: Sequence[Ask]) -> list[torch.Tensor]:
    def prepare(ask: Ask) -> torch.Tensor:
        if ask.pixels is not None:
            return ask.pixels
        assert ask.image is not None
        return captioner.preprocess(ask.image)

    threads = min(sum(ask.pixels is None for ask in asks), torch.get_num_threads())
    if threads <= 1:
        return [prepare(ask) for ask in asks]
    with ThreadPoolExecutor(threads) as pool:  # resizing releases the GIL
        return list(pool.map(prepare, asks))


def _clip_score(caption: Caption) -> float:
    assert caption.clip_score is not None
    return caption.clip_score
