"""BLEU-1 to BLEU-4 of the COCO caption evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from training.dependencies import require
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import CorpusMetric

ORDERS = 4

Counts = tuple[int, ...]
"""Of one caption: its length, the closest reference length, then its n-grams of each order, then those that fit."""

# pycocoevalcap's constants against division by zero and log of zero.
_SMALL = 1e-9
_TINY = 1e-15


class Bleu(CorpusMetric[Counts]):
    """Corpus BLEU with the closest reference length (Papineni et al. 2002), counted by pycocoevalcap."""

    needs = frozenset({"references"})

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._counter = BleuCounter()

    def definitions(self) -> dict[str, Definition]:
        return {
            f"bleu{n}": Definition(f"corpus BLEU-{n}, closest reference length, pycocoevalcap; 0..1", 100.0)
            for n in range(1, ORDERS + 1)
        }

    def counts(self, inputs: MetricInputs) -> list[Counts]:
        assert inputs.tokenized is not None
        pairs = zip(inputs.tokenized.captions, inputs.tokenized.references, strict=True)
        return [self._counter.count(caption, references) for caption, references in pairs]

    def combine(self, counts: Sequence[Counts]) -> dict[str, float]:
        return {f"bleu{n}": score for n, score in enumerate(bleu_scores(counts), start=1)}


class BleuCounter:
    """pycocoevalcap's counting of n-grams."""

    def __init__(self) -> None:
        self._library = require("pycocoevalcap.bleu.bleu_scorer", "train")

    def count(self, caption: str, references: Sequence[str]) -> Counts:
        """The counts of one caption, from space-joined tokens."""
        cooked = self._library.cook_test(caption, self._library.cook_refs(list(references)))
        length = cooked["testlen"]
        closest = min(cooked["reflen"], key=lambda other: (abs(other - length), other))
        return (length, closest, *cooked["guess"], *cooked["correct"])


def bleu_scores(counts: Sequence[Counts]) -> list[float]:
    """BLEU-1 to BLEU-4 of some captions together, to the last bit as pycocoevalcap's."""
    length, closest, *rest = np.asarray(counts, dtype=np.int64).sum(axis=0).tolist()
    ratio = (length + _TINY) / (closest + _SMALL)
    penalty = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    scores, product = [], 1.0
    for n, (made, fitting) in enumerate(zip(rest[:ORDERS], rest[ORDERS:], strict=True), start=1):
        product *= (fitting + _TINY) / (made + _SMALL)
        scores.append(product ** (1 / n) * penalty)
    return scores
