"""The metrics that look at the captions alone, against values worked out by hand."""

from dataclasses import replace

import pytest

from tests.training.metrics.helpers import compute, ended, texts
from training.metrics import build_metrics


def test_length_does_not_count_punctuation() -> None:
    assert compute("length", texts("a dog , a cat .", "Two dogs.")) == {"mean_words": 3.0}


def test_lexical_diversity_keeps_case_and_is_in_thousands() -> None:
    assert compute("lexical_diversity", texts("A dog, a dog.", "a cat")) == {"lexical_diversity": 0.004}  # A dog a cat


def test_vocabulary_ignores_case() -> None:
    assert compute("vocabulary", texts("A dog, a dog.", "a cat")) == {"vocabulary": 3.0}


def test_distinct_captions_are_compared_by_their_words() -> None:
    assert compute("distinct", texts("A cat.", "a cat", "a dog"))["distinct_captions"] == pytest.approx(2 / 3)


def test_repeated_words_are_removed_where_asked() -> None:
    inputs = texts("a man man in a hat", "a man in a hat hat hat")
    assert compute("length", inputs) == {"mean_words": 6.5}
    assert compute("length", inputs, remove_repeats=True) == {"mean_words": 5.0}
    assert compute("distinct", inputs) == {"distinct_captions": 1.0}
    assert compute("distinct", inputs, remove_repeats=True) == {"distinct_captions": 0.5}
    assert compute("vocabulary", inputs, remove_repeats=True) == {"vocabulary": 4.0}


def test_novelty_counts_equal_captions_each_and_compares_words() -> None:
    training = (("A cat.", "a dog runs"), ("two cars",))
    inputs = replace(texts("a cat", "a dog", "a dog", "Two cars!"), training_captions=training)
    assert compute("novelty", inputs) == {"novelty": 0.5}
    repeated = replace(texts("a dog dog runs", "a bird"), training_captions=training)
    assert compute("novelty", repeated) == {"novelty": 1.0}
    assert compute("novelty", repeated, remove_repeats=True) == {"novelty": 0.5}
    assert build_metrics(["novelty"])["novelty"].notes(inputs) == ("3 training captions",)


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
