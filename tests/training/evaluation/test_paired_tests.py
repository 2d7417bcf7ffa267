"""Paired tests against values worked out by hand and against scipy."""

import numpy as np
import pytest
from scipy import stats

from models.paired_tests import flip_means
from training.evaluation.paired_tests import SWAPS, bootstrap_p, mcnemar_exact, swap_counts, swap_medians


def test_mcnemar_is_the_sign_test_of_what_differs() -> None:
    first = np.array([1, 1, 0, 0, 0, 0, 0, 1.0])
    second = np.array([1, 0, 1, 1, 1, 1, 1, 1.0])  # five gained, one lost
    assert mcnemar_exact(first, second) == pytest.approx(2 * (1 + 6) / 64)
    assert mcnemar_exact(first, second) == pytest.approx(stats.binomtest(1, 6).pvalue)
    assert mcnemar_exact(second, first) == mcnemar_exact(first, second)
    assert mcnemar_exact(first, first) == 1


def test_medians_that_are_far_apart_are_told_apart() -> None:
    first = np.arange(20.0)
    assert swap_medians(first, first + 50) < 0.001
    assert swap_medians(first, first) == 1
    assert swap_medians(first, np.roll(first, 1)) == 1


def test_swapped_counts_agree_with_flips_where_the_number_is_a_mean() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=30)
    second = first + rng.normal(0.3, 0.6, size=30)
    p = swap_counts(first.tolist(), second.tolist(), lambda counts: {"mean": sum(counts) / len(counts)})
    assert p["mean"] == pytest.approx(flip_means(first, second), abs=0.03)


def test_no_p_value_is_zero() -> None:
    assert swap_counts([0] * 50, [1] * 50, lambda counts: {"sum": float(sum(counts))})["sum"] == 1 / (SWAPS + 1)
    assert bootstrap_p(np.full(999, 0.5)) == pytest.approx(2 / 1000)
    assert bootstrap_p(np.array([-1.0, 1.0])) == 1
    assert bootstrap_p(np.zeros(10)) == 1
