"""CIDEr-D against values worked out by hand."""

import math

import pytest

from tests.training.metrics.helpers import compute, paired
from training.metrics.cider import Cider


def cider(captions: dict[str, str], references: dict[str, list[str]]) -> float:
    return compute("cider", paired(captions, references))["cider"]


def test_two_of_four_orders_fit() -> None:
    # "a" is in both images (idf 0); "b" and "a b" fit exactly; there are no 3- and 4-grams: 10 * (1 + 1 + 0 + 0) / 4.
    assert cider({"1": "a b", "2": "a c"}, {"1": ["a b"], "2": ["a c"]}) == pytest.approx(5.0)


def test_a_caption_of_the_other_image_scores_zero() -> None:
    assert cider({"1": "a c", "2": "a c"}, {"1": ["a b"], "2": ["a c"]}) == pytest.approx(2.5)


def test_length_penalty() -> None:
    # "b" has one bigram less than "a b": the unigram cosine 1 is weighed by exp(-1 / (2 * 6**2)).
    first = 10 * math.exp(-1 / 72) / 4
    assert cider({"1": "b", "2": "a c"}, {"1": ["a b"], "2": ["a c"]}) == pytest.approx((first + 5.0) / 2)


def test_mean_over_references() -> None:
    one = cider({"1": "a b", "2": "a c"}, {"1": ["a b", "d e"], "2": ["a c"]})
    assert one == pytest.approx((2.5 + 5.0) / 2)


def test_a_single_image_scores_zero_and_the_reader_is_told() -> None:
    inputs = paired({"1": "a dog"}, {"1": ["a dog"]})
    assert Cider().compute(inputs) == {"cider": 0.0}
    assert "single image" in Cider().notes(inputs)[0]
    assert Cider().notes(paired({"1": "a", "2": "b"}, {"1": ["a"], "2": ["b"]})) == ()


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    cider({"1": "a cat", "2": "a dog"}, {"1": ["a cat"], "2": ["a dog"]})
    assert capfd.readouterr() == ("", "")
