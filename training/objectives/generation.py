"""Captions that an objective lets the captioner write."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from models.decoding.loop import decode
from models.decoding.strategy import Strategy
from models.families.base import TorchCaptioner
from models.interfaces import Hypothesis
from training.objectives.interface import Rows
from training.rows import make_rows


@contextmanager
def evaluating(captioner: TorchCaptioner) -> Iterator[None]:
    """Inside the ``with`` block the captioner is in eval mode and keeps no gradient."""
    was_training = captioner.training
    captioner.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        captioner.train(was_training)


def generate(
    captioner: TorchCaptioner,
    memory: Any,
    strategy: Strategy,
    *,
    batch: int,
    num_captions: int = 1,
    seeds: Sequence[int | None] | None = None,
) -> list[list[Hypothesis]]:
    """As ``decode``, by the captioner in eval mode: what it would write when it is used, without dropout."""
    with evaluating(captioner):
        return decode(captioner, memory, strategy, batch=batch, num_captions=num_captions, seeds=seeds)


def generated_rows(captioner: TorchCaptioner, captions: Sequence[Sequence[Hypothesis]]) -> Rows:
    """The captions of B pictures as rows; of one that was cut the end is no target, since it was not written."""
    ids = [
        [[captioner.start_id, *one.tokens, *[captioner.end_id] * (one.finish_reason == "stop")] for one in of_picture]
        for of_picture in captions
    ]
    return make_rows(ids, packed="packing" in captioner.capabilities)
