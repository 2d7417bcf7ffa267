"""Captions by their agreement with the others of their picture."""

from pathlib import Path

import pytest

from training.consensus import agreement, keep_agreeing
from training.data import Example
from training.metrics.ngram_vectors import Idf, cider_d

DOG = ("a dog runs", "two red kites fly over the sea", "a dog runs fast", "a dog runs on grass")
EXAMPLES = [
    Example("dog", Path("dog.png"), DOG),
    Example("cat", Path("cat.png"), ("a cat sleeps", "a cat is asleep")),
    Example("one", Path("one.png"), ("a boat",)),
]


def test_agreement_is_cider_d_against_the_others() -> None:
    idf = Idf([list(example.captions) for example in EXAMPLES])
    vectors = [idf.vector(text) for text in DOG]
    expected = [float(cider_d([own], [other for other in vectors if other is not own]).mean()) for own in vectors]
    found = agreement(EXAMPLES)
    assert found[0] == pytest.approx(expected)
    assert min(found[0]) == found[0][1] == 0
    assert found[1][0] == pytest.approx(found[1][1]) and found[1][0] > 0
    assert found[2] == [0.0]


def test_the_outlier_goes_first_and_order_stays() -> None:
    dog, cat, one = keep_agreeing(EXAMPLES, 3)
    assert dog.captions == (DOG[0], DOG[2], DOG[3])
    assert (cat, one) == tuple(EXAMPLES[1:])
    assert len(keep_agreeing(EXAMPLES, 1)[0].captions) == 1


def test_capitals_and_punctuation_do_not_count() -> None:
    loud = [Example("dog", Path("dog.png"), ("A dog runs.", "a dog runs", "A DOG RUNS!"))]
    assert len(set(agreement(loud)[0])) == 1
