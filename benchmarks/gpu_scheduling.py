"""Images a second that the server's scheduler gets out of a captioner, without Ray and HTTP, for ``benchmarks.gpu``."""

import math
import threading
import time
from concurrent.futures import Future

from torch import Tensor

from benchmarks.blip import pictures as made
from benchmarks.gpu_models import Setup, on_device
from models.caption_session import Ask, Manner
from models.card import WeightsCard
from models.decoding import parse_decode
from models.decoding.strategy import Strategy
from models.pipeline import CaptionPipeline
from serving import metrics
from serving.batches import BatchRunner, CaptionKey, Outcome, Payload
from serving.reports import Reporter
from serving.scheduler import Scheduler
from serving.turns import Done, WorkItem

_ENDS = 0.08
"""About how probable an end is at every step where lengths differ."""


def measure(setup: Setup, *, waiting: int, pictures: int) -> list[tuple[str, float, float]]:
    """Rates in whole batches of ``waiting`` pictures, and by the scheduler while so many wait: of captions of equal
    length, and of sampled ones that end when they end, so that others join. Pixels lie on the host."""
    captioner = on_device(setup.captioner, setup.device, setup.dtype)
    bias = captioner.decoder.cls.predictions.bias
    bias[captioner.end_id] = bias.mean() + math.log(_ENDS * captioner.vocab_size)
    card = WeightsCard(id="random", family="blip", description="random weights", licence="none", parts={}, files={})
    pipeline = CaptionPipeline(captioner, model_id="random", card=card)
    pixels = made(waiting, captioner.image_size_px[0])
    lines = []
    for what, raw in (
        ("greedy, equal lengths", {"name": "greedy", "options": {"min_tokens": setup.tokens}}),
        ("sampled, lengths that differ", {"name": "sample", "options": {}}),
    ):
        strategy = parse_decode({**raw, "options": raw["options"] | {"max_tokens": setup.tokens}})
        for _ in range(2):  # the first warms up
            rates = (
                _batched(pipeline, strategy, pixels, pictures),
                _scheduled(pipeline, strategy, pixels, waiting, pictures),
            )
        lines.append((what, *rates))
    return lines


def _batched(pipeline: CaptionPipeline, strategy: Strategy, pixels: Tensor, pictures: int) -> float:
    began = time.perf_counter()
    for first in range(0, pictures, len(pixels)):
        asks = [Ask(Manner(strategy), None, one, seed=first + number) for number, one in enumerate(pixels)]
        pipeline.caption_asks(asks)
    return pictures / (time.perf_counter() - began)


def _scheduled(pipeline: CaptionPipeline, strategy: Strategy, pixels: Tensor, waiting: int, pictures: int) -> float:
    scheduler: Scheduler[Payload, Outcome] = Scheduler(
        run_turn=BatchRunner(Reporter("benchmark", metrics.REPORTS_LOST)),
        max_queue_images=2 * waiting,
        max_batch_images=waiting,
        max_batch_rows=4 * waiting,
    )
    key = CaptionKey("random", pipeline)
    places = threading.Semaphore(2 * waiting)  # as many wait as are under way
    futures: list[Future[Done[Outcome]]] = []
    began = time.perf_counter()
    for number in range(pictures):
        places.acquire()
        payload = Payload(None, pipeline, Manner(strategy), number, pixels=pixels[number % len(pixels)])
        with scheduler.reserve(1) as room:
            future = room.submit(WorkItem(key, payload))
        future.add_done_callback(lambda _: places.release())
        futures.append(future)
    for future in futures:
        future.result()
    rate = pictures / (time.perf_counter() - began)
    scheduler.close()
    return rate
