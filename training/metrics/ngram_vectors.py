"""tf-idf vectors of captions, and CIDEr between single captions. C candidates, R references."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

_ORDERS = 4
_SIGMA = 6.0

Ngram = tuple[str, ...]


@dataclass(frozen=True)
class NgramVector:
    """One caption: the weight of each of its n-grams, the norm of each order, and how many bigrams it has."""

    weights: dict[Ngram, float]
    norms: np.ndarray
    bigrams: int
    """What CIDEr-D's length penalty is about."""


class Idf:
    """How rare n-grams are among documents, each of which is the captions of one image."""

    def __init__(self, documents: Iterable[Sequence[str]]) -> None:
        """Counts the documents of every n-gram, from space-joined tokens."""
        frequency: Counter[Ngram] = Counter()
        count = 0
        for captions in documents:
            count += 1
            frequency.update({ngram for caption in captions for ngram in _ngrams(caption)})
        self._rarest = math.log(max(count, 1))
        self._idf = {ngram: self._rarest - math.log(holding) for ngram, holding in frequency.items()}

    def vector(self, caption: str) -> NgramVector:
        """The vector of one caption; an n-gram of no document weighs as one of a single document."""
        counts = _ngrams(caption)
        weights = {ngram: count * self._idf.get(ngram, self._rarest) for ngram, count in counts.items()}
        squares = np.zeros(_ORDERS)
        for ngram, weight in weights.items():
            squares[len(ngram) - 1] += weight**2
        bigrams = sum(count for ngram, count in counts.items() if len(ngram) == 2)
        return NgramVector(weights, np.sqrt(squares), bigrams)


def cider(captions: Sequence[NgramVector]) -> np.ndarray:
    """CIDEr (C, C), 0..1, between all pairs: the mean over the orders of the cosines. Symmetric."""
    mean: np.ndarray = _cosines(captions, captions, clipped=False).mean(axis=0)
    return mean


def cider_d(candidates: Sequence[NgramVector], references: Sequence[NgramVector]) -> np.ndarray:
    """CIDEr-D (C, R), 0..10: CIDEr with weights clipped at the reference's and a penalty on unequal lengths."""
    lengths = [np.array([vector.bigrams for vector in side]) for side in (candidates, references)]
    penalty = np.exp(-((lengths[0][:, None] - lengths[1][None, :]) ** 2) / (2 * _SIGMA**2))
    score: np.ndarray = 10 * _cosines(candidates, references, clipped=True).mean(axis=0) * penalty
    return score


def _cosines(candidates: Sequence[NgramVector], references: Sequence[NgramVector], *, clipped: bool) -> np.ndarray:
    """Cosines (4, C, R) of each order, 0 where one side has no n-gram of it that weighs anything."""
    postings = _postings(references, {ngram for candidate in candidates for ngram in candidate.weights})
    products = np.zeros((_ORDERS, len(candidates), len(references)))
    for row, candidate in enumerate(candidates):
        for ngram, weight in candidate.weights.items():
            if ngram in postings:
                columns, weights = postings[ngram]
                products[len(ngram) - 1, row, columns] += (np.minimum(weight, weights) if clipped else weight) * weights
    sides = (candidates, references)
    norms = [np.array([vector.norms for vector in side]).reshape(-1, _ORDERS).T for side in sides]  # (4, C), (4, R)
    scale = norms[0][:, :, None] * norms[1][:, None, :]
    cosines: np.ndarray = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
    return cosines


def _postings(vectors: Sequence[NgramVector], wanted: set[Ngram]) -> dict[Ngram, tuple[np.ndarray, np.ndarray]]:
    """For every wanted n-gram that any vector holds, those vectors, and its weight there."""
    found: dict[Ngram, tuple[list[int], list[float]]] = {}
    for column, vector in enumerate(vectors):
        for ngram in wanted & vector.weights.keys():
            columns, weights = found.setdefault(ngram, ([], []))
            columns.append(column)
            weights.append(vector.weights[ngram])
    return {ngram: (np.array(columns), np.array(weights)) for ngram, (columns, weights) in found.items()}


def _ngrams(caption: str) -> Counter[Ngram]:
    words = caption.split()
    return Counter(tuple(words[at : at + n]) for n in range(1, _ORDERS + 1) for at in range(len(words) - n + 1))
