"""Beams of many images as one bundle of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from models.interfaces import Hypothesis


@dataclass(frozen=True)
class Beams:
    """N beams of each of B images. A score of -inf marks a place that holds no caption."""

    tokens: Tensor  # (B, N, T), the end token where nothing was generated
    score: Tensor  # (B, N), what beams are chosen by: with diversity penalties; per length once finished
    plain: Tensor  # (B, N), the same without diversity penalties
    raw: Tensor  # (B, N), sum of the model's own log-probabilities
    length: Tensor  # (B, N), generated tokens, the end token included
    finished: Tensor  # (B, N), ended or cut at the limit

    @classmethod
    def empty(cls, batch: int, count: int, steps: int, end_id: int, device: torch.device) -> Beams:
        """``count`` places per image without a caption, for up to ``steps`` tokens."""
        zeros = torch.zeros(batch, count, device=device)
        tokens = torch.full((batch, count, steps), end_id, device=device)
        return cls(tokens, zeros - torch.inf, zeros, zeros, zeros.long(), zeros.bool())

    def gather(self, index: Tensor) -> Beams:
        """The beams at ``index`` (B, M) of each image."""
        wide = index.unsqueeze(-1).expand(-1, -1, self.tokens.shape[-1])
        rest = {f.name: getattr(self, f.name).gather(1, index) for f in fields(self) if f.name != "tokens"}
        return Beams(tokens=self.tokens.gather(1, wide), **rest)

    def cat(self, other: Beams) -> Beams:
        """The beams of both, image by image."""
        return Beams(*(torch.cat((getattr(self, f.name), getattr(other, f.name)), dim=1) for f in fields(self)))

    def hypotheses(self, end_id: int) -> list[list[Hypothesis]]:
        """The captions of each image, best first by the score without diversity penalties."""
        columns = (self.tokens, self.score, self.plain, self.raw, self.length)
        images = zip(*(column.tolist() for column in columns), strict=True)
        return [_captions(zip(*image, strict=True), end_id) for image in images]


def _captions(beams: Iterable[tuple[Any, ...]], end_id: int) -> list[Hypothesis]:
    found = []
    for tokens, score, plain, raw, length in beams:
        if score == -torch.inf:
            continue
        ended = tokens[length - 1] == end_id
        caption = tuple(tokens[: length - ended])
        found.append(Hypothesis(caption, raw / length, plain, "stop" if ended else "length"))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)
