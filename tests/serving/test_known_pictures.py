"""Pictures that the engine encoded a moment ago."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch

from models.catalog import DEFAULT_MODEL, list_models
from models.decoding import parse_decode
from models.pipeline import CaptionPipeline, load_pipeline
from serving import metrics
from serving.args import AppArgs
from serving.engine import Engine
from serving.messages import CaptionJob, CaptionReply
from serving.model_pool import LoadedModel
from serving.reports import Reporter
from tests.serving.support import pictures, png

pytestmark = pytest.mark.skipif(
    not {DEFAULT_MODEL, "concise"} <= {entry.id for entry in list_models()}, reason="the bundled models are not here"
)

GREEDY = parse_decode({"name": "greedy"})


class Counting:
    """How many pictures the encoder of a pipeline saw."""

    def __init__(self, pipeline: CaptionPipeline) -> None:
        self.pictures = 0
        captioner: Any = pipeline.captioner
        encode = captioner.encode_stem

        def counted(pixels: torch.Tensor) -> torch.Tensor:
            self.pictures += len(pixels)
            found: torch.Tensor = encode(pixels)
            return found

        captioner.encode_stem = counted


def job(*images: bytes, **fields: Any) -> CaptionJob:
    return CaptionJob(**{"request_id": "r", "model": "concise", "images": images, "strategy": GREEDY, **fields})


def texts(reply: CaptionReply) -> list[str]:
    """Log-probabilities may differ in the last digit: another number of pictures shares the pass."""
    return [caption.text for result in reply.results for caption in result.captions]


def run(scenario: Callable[[Engine, Counting], Awaitable[None]], seconds: float = 60.0) -> None:
    pipelines = {name: load_pipeline(name, scorer=None, device="cpu") for name in ("concise", DEFAULT_MODEL)}
    counting = Counting(pipelines["concise"])

    async def whole() -> None:
        args = AppArgs(models=tuple(pipelines), scorer=None, feature_cache_s=seconds)
        models = {name: LoadedModel(pipeline) for name, pipeline in pipelines.items()}
        engine = Engine(models, args, Reporter("test", metrics.REPORTS_LOST))
        try:
            await scenario(engine, counting)
        finally:
            engine.close()

    asyncio.run(whole())


def test_another_caption_of_a_picture_encodes_it_no_more() -> None:
    async def scenario(engine: Engine, counting: Counting) -> None:
        images = pictures(3)
        first = await engine.caption(job(*images))
        assert counting.pictures == 3
        assert texts(await engine.caption(job(*images))) == texts(first)
        await engine.caption(job(images[0], strategy=parse_decode({"name": "sample", "options": {"seed": 1}})))
        assert counting.pictures == 3
        await engine.caption(job(images[1], png((1, 2, 3))))
        assert counting.pictures == 4

    run(scenario)


def test_models_with_one_encoder_know_the_same_pictures() -> None:
    async def scenario(engine: Engine, counting: Counting) -> None:
        [picture] = pictures(1)
        expected = await engine.caption(job(picture))
        known = await engine.caption(job(picture, model=DEFAULT_MODEL))
        assert counting.pictures == 1 and known.results[0].captions
        assert texts(await engine.caption(job(picture))) == texts(expected)

    run(scenario)


def test_it_can_be_turned_off() -> None:
    async def scenario(engine: Engine, counting: Counting) -> None:
        [picture] = pictures(1)
        for _ in range(2):
            assert (await engine.caption(job(picture))).results[0].captions
        assert counting.pictures == 0  # the whole encoder at once

    run(scenario, seconds=0)


def test_bad_pictures_are_told_each_time() -> None:
    async def scenario(engine: Engine, counting: Counting) -> None:
        for _ in range(2):
            [result] = (await engine.caption(job(png()[:60]))).results
            assert result.error is not None and result.error.code == "truncated"
        assert counting.pictures == 0

    run(scenario)
