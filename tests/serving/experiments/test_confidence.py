"""Intervals against scipy, and against formulas worked out by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from serving.experiments.confidence import (
    Sample,
    boundary,
    confidence_sequence,
    half_width,
    mean_interval,
    pooled_sd,
    tuned_rho2,
    welch_interval,
)


def sample(scores: np.ndarray) -> Sample:
    return Sample(scores.size, float(scores.mean()), float(scores.var(ddof=1)))


def test_the_interval_of_a_mean() -> None:
    scores = np.random.default_rng(1).normal(0.7, 0.1, 25)
    expected = stats.t.interval(0.95, 24, scores.mean(), scores.std(ddof=1) / 5)
    assert mean_interval(sample(scores)) == pytest.approx(expected)
    assert mean_interval(Sample(1, 0.7, 0.0)) is None


def test_welch() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(0.7, 0.1, 25), rng.normal(0.6, 0.3, 200)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert welch_interval(sample(a), sample(b)) == pytest.approx((expected.low, expected.high))
    assert welch_interval(Sample(1, 0.7, 0.0), sample(b)) is None
    assert welch_interval(Sample(3, 0.7, 0.0), Sample(4, 0.5, 0.0)) == pytest.approx((0.2, 0.2))


def test_the_sequence_by_hand() -> None:
    """Equal arms of n = 2000 and variance s^2: t = n/2 = 1000, where rho^2 t = 5.9915 + ln 5.9915 + 1 = 8.7818."""
    assert tuned_rho2(1000, 0.05) * 1000 == pytest.approx(8.7818, abs=1e-4)
    low, high = confidence_sequence(Sample(2000, 0.75, 0.01), Sample(2000, 0.70, 0.01)) or (math.nan, math.nan)
    half = 0.1 * math.sqrt(2 * 9.7818 / (1000 * 8.7818) * math.log(math.sqrt(9.7818) / 0.05))
    assert (low, high) == pytest.approx((0.05 - half, 0.05 + half), rel=1e-5)
    assert half * math.sqrt(1000) / 0.1 == pytest.approx(3.036, abs=1e-3)  # standard errors; 1.96 for one look


def test_the_sequence_follows_the_information_not_the_sizes() -> None:
    a, b = Sample(500, 0.7, 0.04), Sample(100, 0.7, 0.01)
    information = 1 / (0.04 / 500 + 0.01 / 100)
    pooled = (499 * 0.04 + 99 * 0.01) / 598
    _, high = confidence_sequence(a, b) or (math.nan, math.nan)
    expected = math.sqrt(pooled) * float(boundary(np.float64(pooled * information), 0.05))
    assert high == pytest.approx(expected)
    assert pooled_sd(a, b) == pytest.approx(math.sqrt(pooled))
    assert confidence_sequence(b, a) == pytest.approx((-high, high))


def test_the_sequence_is_always_wider_than_one_look_and_narrowest_where_it_is_tuned() -> None:
    t = np.array([50.0, 200, 1000, 5000, 100_000])
    in_errors = boundary(t, 0.05) * np.sqrt(t)
    assert (in_errors > 1.96).all()
    assert in_errors.argmin() == 2
    assert (np.diff(boundary(t, 0.05)) < 0).all()


def test_element_by_element_as_one_by_one() -> None:
    n, variance = np.array([100.0, 300.0]), np.array([0.01, 0.02])
    both = half_width(n, variance, 2 * n, variance / 2, 0.05)
    for index in range(2):
        pair = Sample(int(n[index]), 0, variance[index]), Sample(int(2 * n[index]), 0, variance[index] / 2)
        assert confidence_sequence(*pair) == pytest.approx((-both[index], both[index]))


def test_too_little_to_say_anything() -> None:
    some = Sample(50, 0.7, 0.01)
    assert confidence_sequence(Sample(1, 0.7, 0.0), some) is None
    assert confidence_sequence(Sample(50, 0.7, 0.0), Sample(50, 0.6, 0.0)) is None
    assert confidence_sequence(Sample(50, 0.7, 0.0), some) is not None
    assert pooled_sd(Sample(1, 0.7, 0.0), Sample(1, 0.7, 0.0)) == 0
