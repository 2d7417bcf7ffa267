"""Mismatched captions: what a picture is not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from models.errors import DataError
from training.data import Example
from training.seeds import seed_of

_ROWS_PER_PASS = 512


class NegativeOptions(BaseModel):
    """How many mismatched captions each caption gets, and from where."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    per_caption: int = Field(ge=1)
    hard_share: float = Field(default=0.0, ge=0, le=1)
    """Share drawn from the nearest pictures instead of all."""
    neighbours: int = Field(default=40, ge=1)
    """How many pictures count as nearest."""


class NegativeSampler:
    """Captions of other pictures, drawn anew every epoch.

    Never a caption of the picture itself, nor one with the text of one of its captions: such a caption is no mismatch.
    """

    def __init__(
        self, examples: Sequence[Example], options: NegativeOptions, seed: int, nearest: Tensor | None = None
    ) -> None:
        """``nearest`` (N, neighbours) from ``nearest_images``, where ``hard_share`` is not 0.

        Raises:
            DataError: ``no_data``, there is no other picture.
        """
        if len(examples) < 2:
            raise DataError(
                "no_data", "mismatched captions come from other pictures: the training data need two or more"
            )
        self._captions = [example.captions for example in examples]
        self._own = [{_plain(text) for text in example.captions} for example in examples]
        self._options = options
        self._seed = seed
        self._nearest = nearest

    def draw(self, epoch: int, index: int, captions: int) -> list[tuple[int, int]]:
        """(example, caption) of ``per_caption`` negatives for each of so many captions of example ``index``.

        Fewer where the data set has no other captions at all.
        """
        rng = np.random.default_rng(seed_of(self._seed, "negatives", epoch, index))
        wanted = captions * self._options.per_caption
        found: list[tuple[int, int]] = []
        for _ in range(20 * wanted):  # a data set of repeats may hold no mismatch: then this ends
            if len(found) == wanted:
                break
            other = self._other(rng, index)
            number = int(rng.integers(len(self._captions[other])))
            if other != index and _plain(self._captions[other][number]) not in self._own[index]:
                found.append((other, number))
        return found

    def _other(self, rng: np.random.Generator, index: int) -> int:
        if self._nearest is not None and rng.random() < self._options.hard_share:
            return int(self._nearest[index, int(rng.integers(self._nearest.shape[1]))])
        return int(rng.integers(len(self._captions)))


def nearest_images(features: Tensor, count: int) -> Tensor:
    """Indices (N, count) of the most similar other rows of unit features (N, D), best first."""
    count = min(count, len(features) - 1)
    parts = []
    for start in range(0, len(features), _ROWS_PER_PASS):
        similarity = features[start : start + _ROWS_PER_PASS] @ features.T
        rows = torch.arange(len(similarity))
        similarity[rows, start + rows] = -torch.inf
        parts.append(similarity.topk(count, dim=1).indices)
    return torch.cat(parts)


def _plain(text: str) -> str:
    """A caption without what does not make it another one."""
    return " ".join(text.lower().split()).rstrip(" .")
