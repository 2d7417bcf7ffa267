"""Batches from plain captions, who gets a gradient, and a few steps of training."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from models.families.base import TorchCaptioner
from tests.models.families.tiny_models import images
from training.objectives.interface import Batch, Loss, Objective, Rows
from training.rows import caption_ids, make_rows

UNEQUAL = (("a dog", "the dog runs on grass"), ("a man",), ("the child plays", "a child", "a red shirt"))
"""Captions of three pictures, not equally many of each."""


def rows_of(captioner: TorchCaptioner, captions: Sequence[Sequence[str]]) -> Rows:
    """Captions of each picture as the rows that the captioner's family takes."""
    ids = [caption_ids(captioner, of_picture, 12) for of_picture in captions]
    return make_rows(ids, packed="packing" in captioner.capabilities)


def batch_of(
    captioner: TorchCaptioner,
    captions: Sequence[Sequence[str]] = UNEQUAL,
    negatives: Sequence[Sequence[str]] | None = None,
) -> Batch:
    """Pictures of colour blotches with these captions."""
    pixels = torch.stack([captioner.preprocess(image) for image in images(len(captions))])
    with torch.no_grad():
        features = captioner.encode_stem(pixels)
    return Batch(
        images=torch.arange(len(captions)),
        features=features,
        captions=rows_of(captioner, captions),
        negatives=None if negatives is None else rows_of(captioner, negatives),
    )


def with_gradient(captioner: TorchCaptioner) -> set[str]:
    """Names of the parameters whose gradient is not zero; all gradients are finite."""
    grads = {name: p.grad for name, p in captioner.named_parameters() if p.grad is not None}
    assert all(torch.isfinite(grad).all() for grad in grads.values())
    return {name for name, grad in grads.items() if grad.abs().max() > 0}


def decoder_parameters(captioner: TorchCaptioner) -> set[str]:
    """Names of the parameters that any loss over captions teaches: all that can be trained but the null memory."""
    return {name for name, p in captioner.named_parameters() if p.requires_grad and "null_memory" not in name}


def train(
    captioner: TorchCaptioner,
    objective: Objective,
    batch: Batch | Callable[[int], Batch],
    *,
    steps: int = 20,
    rate: float = 1e-2,
) -> list[dict[str, Tensor]]:
    """Parts of the loss at every step, and ``total``; random numbers are seeded by the step, as the trainer does."""
    optimizer = torch.optim.AdamW([p for p in captioner.parameters() if p.requires_grad], lr=rate)
    history = []
    for step in range(steps):
        torch.manual_seed(step)
        loss: Loss = objective(captioner, batch if isinstance(batch, Batch) else batch(step))
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        history.append({**loss.parts, "total": loss.total.detach()})
    return history
