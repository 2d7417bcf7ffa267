"""Beams of many images as one bundle of tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.interfaces import Hypothesis
from models.rows import cat_left_padded

CHOICE, PLAIN, RAW = 0, 1, 2
"""Columns of ``Beams.sums``."""


@dataclass(frozen=True)
class Beams:
    """N beams of each of B images. A score of -inf marks a place that holds no caption."""

    text: Tensor
    """(B, N, L): prompt and caption so far, left-padded with the id V."""
    sums: Tensor
    """(B, N, 3): what beams are chosen by, with diversity penalties; the same without them; the model's own
    log-probabilities. Of finished beams the first two are per length."""
    length: Tensor
    """(B, N): generated tokens, the end token included; 0 where nothing was finished."""

    @classmethod
    def empty(cls, prompt: Tensor, count: int) -> Beams:
        """``count`` places per image without a caption, after a prompt (B, P)."""
        batch = len(prompt)
        sums = torch.zeros(batch, count, 3, device=prompt.device)
        sums[..., CHOICE] = -torch.inf
        return cls(prompt.unsqueeze(1).expand(-1, count, -1), sums, prompt.new_zeros(batch, count))

    @property
    def score(self) -> Tensor:
        """(B, N), what beams are chosen by."""
        return self.sums[..., CHOICE]

    def gather(self, index: Tensor) -> Beams:
        """The beams at ``index`` (B, M) of each image."""
        wide = index.unsqueeze(-1)
        return Beams(
            self.text.gather(1, wide.expand(-1, -1, self.text.shape[-1])),
            self.sums.gather(1, wide.expand(-1, -1, 3)),
            self.length.gather(1, index),
        )

    def beside(self, other: Beams, padding: int) -> Beams:
        """The beams of both, image by image."""
        missing = other.text.shape[-1] - self.text.shape[-1]
        text = torch.nn.functional.pad(self.text, (missing, 0), value=padding)
        return Beams(
            torch.cat((text, other.text), dim=1),
            torch.cat((self.sums, other.sums), dim=1),
            torch.cat((self.length, other.length), dim=1),
        )

    def below(self, other: Beams, padding: int) -> Beams:
        """The images of both."""
        return Beams(
            cat_left_padded((self.text, other.text), padding),
            torch.cat((self.sums, other.sums)),
            torch.cat((self.length, other.length)),
        )

    def of(self, images: Tensor, skipped: int = 0) -> Beams:
        """The beams of ``images`` (M,), without the first ``skipped`` columns of the text."""
        return Beams(self.text[images, :, skipped:], self.sums[images], self.length[images])

    def hypotheses(self, end_id: int) -> list[list[Hypothesis]]:
        """The captions of each image, best first by the score without diversity penalties."""
        columns = (self.text, self.sums, self.length)
        images = zip(*(column.tolist() for column in columns), strict=True)
        return [_captions(zip(*image, strict=True), end_id) for image in images]


def _captions(beams: Iterable[tuple[Any, ...]], end_id: int) -> list[Hypothesis]:
    found = []
    for text, (choice, plain, raw), length in beams:
        if choice == -torch.inf:
            continue
        tokens = text[len(text) - length :]
        ended = tokens[-1] == end_id
        caption = tuple(tokens[: length - ended])
        found.append(Hypothesis(caption, raw / length, plain, "stop" if ended else "length"))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)
