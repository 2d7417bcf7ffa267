"""CIDEr between single captions against pycocoevalcap and a slow twin."""

import itertools
import math
import random

import numpy as np
import pytest
from pycocoevalcap.cider.cider_scorer import CiderScorer

from training.metrics.ngram_vectors import Idf, NgramVector, cider, cider_d


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices("a b c d e".split(), k=draw.randint(0, 9))) for _ in range(count)]


def slow_cosine(one: NgramVector, other: NgramVector, n: int) -> float:
    sides = [{ngram: weight for ngram, weight in of.weights.items() if len(ngram) == n} for of in (one, other)]
    product = sum(weight * sides[1].get(ngram, 0.0) for ngram, weight in sides[0].items())
    norm = math.prod(math.sqrt(sum(weight**2 for weight in side.values())) for side in sides)
    return product / norm if norm else 0.0


def test_cider_d_of_pairs_averages_to_pycocoevalcaps_score() -> None:
    captions, references = sentences(12, 0), [sentences(3, seed) for seed in range(1, 13)]
    scorer = CiderScorer(n=4, sigma=6.0)
    for caption, of in zip(captions, references, strict=True):
        scorer += (caption, of)
    idf = Idf(references)
    ours = [
        cider_d([idf.vector(caption)], [idf.vector(reference) for reference in of]).mean()
        for caption, of in zip(captions, references, strict=True)
    ]
    assert ours == pytest.approx(scorer.compute_score()[1].tolist(), abs=1e-9)


def test_cider_equals_the_slow_twin_and_is_symmetric() -> None:
    idf = Idf([sentences(3, seed) for seed in range(6)])
    vectors = [idf.vector(text) for text in sentences(7, 40)]
    kernel = cider(vectors)
    assert np.array_equal(kernel, kernel.T) or np.allclose(kernel, kernel.T, atol=1e-15)
    for (row, one), (column, other) in itertools.product(enumerate(vectors), repeat=2):
        slow = sum(slow_cosine(one, other, n) for n in range(1, 5)) / 4
        assert kernel[row, column] == pytest.approx(slow, abs=1e-12)


def test_words_of_every_document_weigh_nothing_and_unknown_ones_as_the_rarest() -> None:
    idf = Idf([["a b"], ["a c"]])
    weights = idf.vector("a b x x").weights
    assert weights["a",] == 0.0
    assert weights["b",] == pytest.approx(math.log(2))
    assert weights["x",] == pytest.approx(2 * math.log(2))


def test_nothing_to_compare() -> None:
    idf = Idf([])
    assert cider([idf.vector(""), idf.vector("a")]).tolist() == [[0, 0], [0, 0]]
    assert cider_d([], [idf.vector("a")]).shape == (0, 1)
