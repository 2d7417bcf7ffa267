"""The scorer of the sample, without Ray: one model on one thread that steps back for whatever else the machine does."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from models.drafting import draft_px
from models.errors import ImageError
from models.images import ImageLimits, LoadedImage, load_image
from serving import metrics
from serving.messages import SampledImage
from serving.quality import QualitySample
from serving.reports import Reporter

if TYPE_CHECKING:
    from models.clip_scorer import ClipScorer

logger = logging.getLogger(__name__)

_NICENESS = 19  # as far as it goes: Ray has put every replica at 15 already


class SampleScorer:
    """Loads its model at the first call; reports a score per image, without the text, which was told already."""

    def __init__(
        self, load: Callable[[], ClipScorer], limits: ImageLimits, reporter: Reporter, *, draft: bool = False
    ) -> None:
        """``draft``: whether large JPEGs may be decoded smaller."""
        self._load = load
        self._limits = limits
        self._draft = draft
        self._reporter = reporter
        self._scorer: ClipScorer | None = None
        self._failed_at: float | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="limner-scorer", initializer=_step_back)
        reporter.gauge(metrics.SCORER_UP, 0)

    async def score(self, images: Sequence[SampledImage]) -> None:
        """Score what can be opened; the rest is counted as shed.

        Raises:
            LimnerError: the model cannot be loaded, now or at an earlier call.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._score, images)

    @property
    def failed_for_s(self) -> float | None:
        """Seconds since the model could not be loaded; None when it could, or was not yet tried."""
        return None if self._failed_at is None else time.monotonic() - self._failed_at

    def close(self) -> None:
        """Give up what waits."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _score(self, images: Sequence[SampledImage]) -> None:
        scorer = self._ready()
        smallest = draft_px(scorer.input_side_px) if self._draft else None
        scored = [told for image in images if (told := self._score_one(scorer, image, smallest)) is not None]
        for told in scored:
            self._reporter.sample(told)

    def _score_one(self, scorer: ClipScorer, image: SampledImage, smallest_px: int | None) -> QualitySample | None:
        """A pass of its own: on a CPU several at once are no faster, and every size of pass that comes for the first
        time takes memory that stays; nor are several pictures held open."""
        loaded = self._open(image, smallest_px)
        if loaded is None:
            return None
        sample = image.sample
        ((score,),) = scorer.score([loaded.image], [[sample.text or ""]])
        return QualitySample(sample.model, None, score, sample.expected_clip_score, sample.usual)

    def _ready(self) -> ClipScorer:
        if self._failed_at is not None:
            raise RuntimeError("the scorer could not be loaded")
        if self._scorer is None:
            try:
                self._scorer = self._load()
            except Exception:
                self._failed_at = time.monotonic()
                logger.exception("the sampled captions are not scored")
                raise
            self._reporter.gauge(metrics.SCORER_UP, 1)
        return self._scorer

    def _open(self, image: SampledImage, smallest_px: int | None) -> LoadedImage | None:
        try:
            return load_image(image.data, self._limits, draft_px=smallest_px)
        except ImageError:  # the captioner could open it: only memory can be short
            self._reporter.count(metrics.SCORES_SHED)
            return None


def _step_back() -> None:
    """Lower the priority of the calling thread; on Linux it is each thread's own, and inherited."""
    os.nice(_NICENESS)
