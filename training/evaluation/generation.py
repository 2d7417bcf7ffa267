"""One pass over pictures: captions by a captioner, features by scorers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL.Image import Image

from models.clip_scorer import ClipScorer
from models.decoding.strategy import Strategy
from models.interfaces import Caption
from models.pipeline import CaptionPipeline
from training.data import Example
from training.data.selection import Progress, image_batches


@dataclass(frozen=True)
class _Batch:
    """What one batch took."""

    images: int
    seconds: float
    stages_ms: Mapping[str, float]


class Generator:
    """Captions batch after batch. The i-th image has the strategy's seed + i, whatever the batches."""

    def __init__(self, pipeline: CaptionPipeline, strategy: Strategy, num_captions: int = 1) -> None:
        self._pipeline = pipeline
        self._strategy = strategy
        self._num_captions = num_captions
        self._batches: list[_Batch] = []
        self.captions: list[list[Caption]] = []
        """Of each image so far, best first."""

    def caption(self, images: Sequence[Image]) -> None:
        """Captions of the next pictures."""
        first = (self._strategy.seed or 0) + len(self.captions)
        seeds = list(range(first, first + len(images)))
        started = time.perf_counter()
        result = self._pipeline.caption(images, self._strategy, num_captions=self._num_captions, seeds=seeds)
        self._batches.append(_Batch(len(images), time.perf_counter() - started, result.timing_ms))
        self.captions.extend(result.captions)

    def timing(self) -> dict[str, Any]:
        """Seconds per image, from preprocessing to text; the first batch warms up where there are more."""
        timed = self._batches[1:] or self._batches
        images = sum(batch.images for batch in timed)
        stages = {name: sum(batch.stages_ms[name] for batch in timed) / images for name in timed[0].stages_ms}
        return {
            "seconds_per_image": round(sum(batch.seconds for batch in timed) / images, 6),
            "timed_images": images,
            "stages_ms_per_image": {name: round(ms, 3) for name, ms in stages.items()},
            "threads": torch.get_num_threads(),
        }


def pass_over(
    examples: Sequence[Example],
    batch_size: int,
    *,
    scorers: Sequence[ClipScorer] = (),
    generator: Generator | None = None,
    progress: Progress | None = None,
) -> list[torch.Tensor]:
    """Features (N, D) of the pictures under each scorer; ``generator`` captions them on the way.

    Raises:
        ImageError: a picture cannot be read; pictures that nobody asks for are not looked at.
    """
    if generator is None and not scorers:
        return []
    gathered: list[list[torch.Tensor]] = [[] for _ in scorers]
    for _, images in image_batches(examples, batch_size, progress):
        if generator is not None:
            generator.caption(images)
        for scorer, parts in zip(scorers, gathered, strict=True):
            parts.append(scorer.encode_images(images))
    return [torch.cat(parts) for parts in gathered]
