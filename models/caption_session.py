"""Pictures that are captioned together for as long as each needs: encoded, decoded in any strategy, scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from PIL.Image import Image

from models.decoding.session import DecodeSession, step_together
from models.decoding.strategy import Strategy
from models.families.base import TorchCaptioner
from models.interfaces import Caption, Captioner, Hypothesis

if TYPE_CHECKING:
    from models.pipeline import CaptionPipeline

_SCORED_TOGETHER = 8
"""Captioned pictures that are worth a pass of the scorer while others are still under way."""


@dataclass(frozen=True)
class Manner:
    """How a picture is captioned."""

    strategy: Strategy
    num_captions: int = 1
    rerank: bool = False
    """Give the ``num_captions`` with the highest CLIPScore of all candidates."""

    @property
    def candidates(self) -> int:
        """Captions to find. Raises RequestError, ``invalid_request``, for more than the strategy can give."""
        self.strategy.rows(self.num_captions)
        return self.strategy.candidates(self.num_captions) if self.rerank else self.num_captions

    @property
    def rows(self) -> int:
        """Decoder rows of each picture; raises as ``candidates`` does."""
        return self.strategy.rows(self.candidates)

    def key(self) -> Hashable:
        """Equal for pictures that one search can be for: seeds are each picture's own."""
        return (self.strategy.group_key(), self.num_captions, self.rerank)


@dataclass(frozen=True)
class Ask:
    """One picture that is to be captioned."""

    manner: Manner
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
    """The others who want their pictures captioned, asked between steps. Pictures have numbers that count from 0 in the
    order in which they came."""

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

    @property
    def is_scored(self) -> bool:
        return self.ask.score or self.ask.manner.rerank


@dataclass(eq=False)
class _Group:
    """The pictures under way of one manner."""

    decoding: DecodeSession
    numbers: dict[int, int] = field(default_factory=dict)
    """By the number that the decoding gives a picture."""


class CaptionSession:
    """The pictures that are under way in one pipeline. Those of one manner share a search, those of all manners the
    passes of encoder, decoder (where the family has ``shared_steps``) and scorer. Not for several threads."""

    def __init__(self, pipeline: CaptionPipeline) -> None:
        self._pipeline = pipeline
        self._groups: dict[Hashable, _Group] = {}
        self._under_way: dict[int, _UnderWay] = {}
        self._unscored: list[int] = []
        self._added = self._parts = 0
        self.decode_ms = self.score_ms = 0.0
        """What all steps and all scoring took so far."""

    @property
    def images(self) -> int:
        """How many pictures are under way."""
        return len(self._under_way)

    @property
    def takes_more(self) -> bool:
        """Whether pictures may be added now."""
        return all(group.decoding.takes_more for group in self._groups.values())

    def add(self, asks: Sequence[Ask]) -> float:
        """Encode these pictures, which are then under way; returns what that took, milliseconds. Raises as
        ``DecodeSession`` does."""
        captioner = self._pipeline.captioner
        places: dict[Hashable, list[int]] = {}
        for place, ask in enumerate(asks):
            places.setdefault(ask.manner.key(), []).append(place)
        parts = [[asks[place] for place in own] for own in places.values()]
        for key, part in zip(places, parts, strict=True):
            if key not in self._groups:
                manner = part[0].manner
                self._groups[key] = _Group(DecodeSession(captioner, manner.strategy, manner.candidates))
        began = time.perf_counter()
        memories = _encode(captioner, parts)
        encode_ms = (time.perf_counter() - began) * 1000
        decoded_before_ms = self.decode_ms
        began = time.perf_counter()
        for key, part, memory in zip(places, parts, memories, strict=True):
            group = self._groups[key]
            numbers = group.decoding.add(
                memory, batch=len(part), prompts=[ask.prompt for ask in part], seeds=[ask.seed for ask in part]
            )
            group.numbers.update(zip(numbers, (self._added + place for place in places[key]), strict=True))
        self.decode_ms += (time.perf_counter() - began) * 1000
        for number, ask in enumerate(asks, self._added):
            self._under_way[number] = _UnderWay(ask, self._parts, encode_ms, decoded_before_ms)
        self._added += len(asks)
        self._parts += 1
        return encode_ms

    def step(self) -> dict[int, Captioned]:
        """One token more for each picture; those that are done leave. Scores are computed for several together."""
        began = time.perf_counter()
        done: dict[int, list[Caption]] = {}
        groups = list(self._groups.values())
        for group, found in zip(groups, step_together([group.decoding for group in groups]), strict=True):
            for number, hypotheses in found.items():
                done[group.numbers.pop(number)] = [self._read(each) for each in hypotheses]
        self._forget_empty_groups()
        self.decode_ms += (time.perf_counter() - began) * 1000
        for number, captions in done.items():
            picture = self._under_way[number]
            picture.captions, picture.decode_ms = captions, self.decode_ms - picture.decoded_before_ms
        waiting = [number for number in done if self._under_way[number].is_scored]
        self._unscored += waiting
        ready = {number: self._leave(number) for number in done if number not in waiting}
        if self._unscored and (len(self._unscored) >= _SCORED_TOGETHER or not self._groups):
            ready |= self._score()
        return ready

    def drop(self, numbers: Collection[int]) -> None:
        """Give up these pictures, where they are under way."""
        if not numbers:
            return
        for group in self._groups.values():
            gone = {own for own, number in group.numbers.items() if number in numbers}
            group.decoding.drop(gone)
            for own in gone:
                del group.numbers[own]
        self._forget_empty_groups()
        self._unscored = [number for number in self._unscored if number not in numbers]
        for number in numbers:
            self._under_way.pop(number, None)

    def _forget_empty_groups(self) -> None:
        self._groups = {key: group for key, group in self._groups.items() if group.numbers}

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
            manner = picture.ask.manner
            if manner.rerank:
                scored = sorted(scored, key=_clip_score, reverse=True)[: manner.num_captions]
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


def _encode(captioner: Captioner, parts: Sequence[Sequence[Ask]]) -> list[Any]:
    """The memory of each part's pictures, all of which are encoded together; those whose features are known are not
    encoded again."""
    asks = [ask for part in parts for ask in part]
    if not isinstance(captioner, TorchCaptioner):
        return [captioner.encode(_pixels(captioner, part)) for part in parts]
    if len(parts) == 1 and all(ask.features is None and ask.remember is None for ask in asks):
        return [captioner.encode(_pixels(captioner, asks))]
    fresh = [ask for ask in asks if ask.features is None]
    encoded = iter(captioner.encode_stem(_pixels(captioner, fresh)) if fresh else ())
    features = [next(encoded) if ask.features is None else ask.features for ask in asks]
    for ask, found in zip(asks, features, strict=True):
        if ask.features is None and ask.remember is not None:
            ask.remember(found.clone())  # not a part of the batch, all of which it would keep
    left = iter(features)
    return [captioner.encode_from_stem(torch.stack([next(left) for _ in part])) for part in parts]


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
