"""The metrics that look at the captions alone, against values worked out by hand."""

import pytest

from tests.training.metrics.helpers import compute, ended, texts


def test_length_does_not_count_punctuation() -> None:
    assert compute("length", texts("a dog , a cat .", "Two dogs.")) == {"mean_words": 3.0}


def test_lexical_diversity_keeps_case_and_is_in_thousands() -> None:
    assert compute("lexical_diversity", texts("A dog, a dog.", "a cat")) == {"lexical_diversity": 0.004}  # A dog a cat


def test_vocabulary_ignores_case() -> None:
    assert compute("vocabulary", texts("A dog, a dog.", "a cat")) == {"vocabulary": 3.0}


def test_distinct_captions_are_compared_by_their_words() -> None:
    assert compute("distinct", texts("A cat.", "a cat", "a dog"))["distinct_captions"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("caption", "n", "repeats"),
    [
        ("a b c a b c", 3, 1.0),
        ("a a a", 3, 0.0),
        ("a a a a", 3, 1.0),
        ("a b a b", 3, 0.0),
        ("a b a b", 2, 1.0),
        ("", 3, 0.0),
    ],
)
def test_repetition(caption: str, n: int, repeats: float) -> None:
    assert compute("repetition", texts(caption), n=n) == {"repetition": repeats}


def test_repetition_is_a_share_of_captions() -> None:
    assert compute("repetition", texts("on a mat on a mat", "x", "y", "z")) == {"repetition": 0.25}


def test_cut_is_the_share_that_reached_the_limit() -> None:
    assert compute("cut", ended("stop", "length", "stop", "stop")) == {"cut": 0.25}
