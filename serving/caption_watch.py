"""What a captioner replica tells of its captions: all to the monitor, and a sample of unscored ones to the scorer."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b

from models.decoding.strategy import Strategy
from serving import metrics
from serving.args import MonitorArgs
from serving.messages import CaptionJob, CaptionReply, SampledImage
from serving.quality import QualitySample
from serving.reports import Reporter

logger = logging.getLogger(__name__)

SendScores = Callable[[Sequence[SampledImage]], Awaitable[None]]

_IMAGES_PER_CALL = 8
_CALL_TIMEOUT_S = 60.0  # the first call waits while the scorer loads


class CaptionWatch:
    """Adds no wait to a request: ``see`` only keeps what ``run`` sends, and sheds the newest when that is too much.

    Lives on one event loop. ``own_decoding``: the strategy of each model when a request names none.
    """

    def __init__(
        self, args: MonitorArgs, own_decoding: Mapping[str, Strategy], reporter: Reporter, *, scoring: bool
    ) -> None:
        self._args = args
        self._own_decoding = dict(own_decoding)
        self._reporter = reporter
        self._share = args.sample_share if scoring else 0.0
        self._waiting: deque[SampledImage] = deque()
        self._waiting_bytes = 0
        self._filled = asyncio.Event()

    def set_own_decoding(self, model: str, strategy: Strategy | None) -> None:
        """Take note of a model's own decoding; None: it is served no more."""
        self._own_decoding.pop(model, None)
        if strategy is not None:
            self._own_decoding[model] = strategy

    def see(self, job: CaptionJob, reply: CaptionReply) -> None:
        """Take note of what a request got. What was scored for it is not scored again."""
        for index, (data, image) in enumerate(zip(job.images, reply.results, strict=True)):
            if not image.captions or not isinstance(data, bytes):
                continue
            best, point = image.captions[0], image.point
            comparable = point.coefficients is None or point.expected_clip_score is not None  # no mix of a client's own
            usual = comparable and job.strategy == self._own_decoding.get(job.model)
            sample = QualitySample(job.model, best.text, best.clip_score, point.expected_clip_score, usual)
            self._reporter.sample(sample)
            if sample.clip_score is None and is_sampled(job.request_id, index, self._share):
                self._reporter.count(metrics.SCORES_SAMPLED)
                self._keep(SampledImage(data, sample))

    async def run(self, send: SendScores, *, nudge_after_s: float = 30.0, pause_s: float = 1.0) -> None:
        """Send what was sampled, at most one call at a time, until cancelled.

        Args:
            nudge_after_s: without images for so long, and at once, a call without any lets the scorer load its model.
            pause_s: after a call that failed.
        """
        batch: list[SampledImage] = []
        while True:
            try:
                async with asyncio.timeout(_CALL_TIMEOUT_S):
                    await send(batch)
            except Exception as error:
                logger.debug("%d sampled images were not scored: %r", len(batch), error)
                if batch:
                    self._reporter.count(metrics.SCORES_SHED, amount=len(batch))
                await asyncio.sleep(pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(nudge_after_s):
                    await self._filled.wait()
            batch = self._take()

    def _keep(self, image: SampledImage) -> None:
        full = len(self._waiting) >= self._args.max_waiting_images
        if full or self._waiting_bytes + len(image.data) > self._args.max_waiting_bytes:
            self._reporter.count(metrics.SCORES_SHED)
            return
        self._waiting.append(image)
        self._waiting_bytes += len(image.data)
        self._filled.set()

    def _take(self) -> list[SampledImage]:
        batch = [self._waiting.popleft() for _ in range(min(_IMAGES_PER_CALL, len(self._waiting)))]
        self._waiting_bytes -= sum(len(image.data) for image in batch)
        if not self._waiting:
            self._filled.clear()
        return batch


def is_sampled(request_id: str, index: int, share: float) -> bool:
    """Whether an image belongs to the sampled share (0 to 1): for the same request always the same answer."""
    digest = blake2b(f"{request_id}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64
