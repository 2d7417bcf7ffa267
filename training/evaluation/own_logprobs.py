"""The captioner's own log p(caption | picture) of every caption and every picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from training.data import Example
from training.data.selection import Progress, image_batches
from training.objectives.contrastive import sequence_logprobs
from training.rows import caption_ids, make_rows

_TOKENS_PER_PASS = 1024  # bounds the logits, (tokens, vocabulary) in fp32


@torch.inference_mode()
def caption_logprobs(
    captioner: Any, captions: Sequence[str], examples: Sequence[Example], progress: Progress | None = None
) -> torch.Tensor:
    """log p(caption i | picture j) (N, M) in nats, end token included, fp32: N captions are scored M times.

    The captions are rows that share the memory of one picture after the other.

    Args:
        captioner: a ``models.interfaces.Captioner``.

    Raises:
        ImageError: a picture cannot be read.
    """
    ids = caption_ids(captioner, captions, captioner.max_positions - 1)
    device = getattr(captioner, "device", torch.device("cpu"))  # a captioner without weights has none
    out = torch.empty(len(captions), len(examples))
    for column, (_, images) in enumerate(image_batches(examples, 1, progress)):
        memory = captioner.encode(captioner.preprocess(images[0])[None])
        for rows in _passes(ids):
            placed = make_rows([[ids[row] for row in rows]], packed=False).to(device)
            out[rows, column] = sequence_logprobs(captioner, memory, placed).cpu()
    return out


def _passes(ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Indices of captions of about one length, as many as fit into a pass."""
    taken: list[int] = []
    for index in sorted(range(len(ids)), key=lambda at: len(ids[at])):
        if taken and (len(taken) + 1) * len(ids[index]) > _TOKENS_PER_PASS:
            yield taken
            taken = []
        taken.append(index)
    if taken:
        yield taken
