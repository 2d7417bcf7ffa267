"""Summaries and verdicts from scores that are made up."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from models.interfaces import Caption
from serving.comparison import Comparison
from serving.messages import CaptionedImage, Failure


def result(text: str, score: float, *, cut: bool = False) -> CaptionedImage:
    return CaptionedImage((Caption(text, -1.0, 5, "length" if cut else "stop", score, "s"),))


def compared(*scores: Sequence[float]) -> Comparison:
    comparison = Comparison(len(scores))
    for row in zip(*scores, strict=True):
        comparison.add([result("a dog", score) for score in row])
    return comparison


def test_each_arm_by_itself() -> None:
    comparison = Comparison(2)
    comparison.add([result("A dog runs.", 0.5), result("a dog on a bed a dog on a bed", 0.5, cut=True)])
    comparison.add([result("a dog", 0.7), result("a cat", 0.9)])
    comparison.add([result("a dog", 0.7), CaptionedImage(error=Failure("empty", "no bytes"))])
    first, second = comparison.arms()
    assert comparison.pictures == 2
    assert (first.clip_score, first.words, first.distinct_words) == (pytest.approx(0.6), 2.5, 4)
    assert (first.repetition, first.cut) == (0.0, 0.0)
    assert (second.words, second.distinct_words, second.repetition, second.cut) == (6.0, 5, 0.5, 0.5)
    assert first.interval == pytest.approx(stats.t.interval(0.95, 1, 0.6, 0.1))


def test_pairs_are_paired() -> None:
    """Differences that are small and steady are told apart, however much the pictures differ."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0.7, 0.2, size=40)
    slightly = hard + rng.normal(0.03, 0.02, size=40)
    noise = hard + rng.normal(0.0, 0.05, size=40)
    first, second, third = compared(hard.tolist(), slightly.tolist(), noise.tolist()).pairs()
    assert [(pair.a, pair.b) for pair in (first, second, third)] == [(0, 1), (0, 2), (1, 2)]
    assert (first.verdict, second.verdict, third.verdict) == ("b better", "undecided", "a better")
    assert first.difference == pytest.approx(float((slightly - hard).mean()))
    assert first.a_higher + first.b_higher == 40 and first.b_higher > 30
    interval = stats.ttest_rel(slightly, hard).confidence_interval(0.95)
    assert first.interval == (pytest.approx(interval.low, abs=1e-6), pytest.approx(interval.high, abs=1e-6))
    assert first.p == pytest.approx(3 / 10_001, rel=1e-6)  # the least of 10,000 flips, times three pairs


def test_equal_arms_are_undecided() -> None:
    (pair,) = compared([0.5, 0.6, 0.7], [0.5, 0.6, 0.7]).pairs()
    assert (pair.difference, pair.p, pair.verdict, pair.equal) == (0.0, 1.0, "undecided", 3)
    assert pair.interval == (0.0, 0.0)


def test_few_pictures_decide_nothing() -> None:
    for count in range(1, 6):  # the true assignment is one of at most 32
        (pair,) = compared([0.1] * count, [2.0] * count).pairs()
        assert pair.verdict == "undecided" and pair.p > 0.05
    assert compared([0.5], [0.6]).pairs()[0].interval is None


def test_equal_captioners_are_seldom_told_apart() -> None:
    """Three arms of one quality: some pair gets a verdict in at most about 5 % of comparisons."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(60):
        picture = rng.normal(0.7, 0.2, size=30)
        arms = [(picture + rng.normal(0, 0.1, size=30)).tolist() for _ in range(3)]
        wrong += any(pair.verdict != "undecided" for pair in compared(*arms).pairs())
    assert wrong <= 7  # P(more | 5 %) < 1 %
