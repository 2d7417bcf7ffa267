"""What the scheduler queues for one image, made in the thread that opened it."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from PIL.Image import Image

from models.caption_session import Manner
from models.pipeline import CaptionPipeline
from serving.batches import Payload

if TYPE_CHECKING:
    import torch


def caption_payload(
    pipeline: CaptionPipeline,
    manner: Manner,
    score: bool,
    image: Image | None,
    features: "torch.Tensor | None",
    remember: "Callable[[torch.Tensor], None] | None",
) -> Payload:
    """The image with its pixels, where it is to be encoded."""
    # Always a number: in a batch of several requests, None would stand for the first one's seed.
    seed = random.getrandbits(63) if manner.strategy.seed is None else manner.strategy.seed
    pixels = pipeline.captioner.preprocess(image) if features is None and image is not None else None
    return Payload(image, pipeline, manner, seed, score, (), pixels, features, remember)


def score_payload(pipeline: CaptionPipeline, captions: tuple[str, ...], image: Image, *_: object) -> Payload:
    """The image with the captions that it is to be scored with."""
    return Payload(image, pipeline, captions=captions)
