"""Paired statistics against values worked out by hand and against scipy."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from models import paired_tests
from models.paired_tests import coins, flip_means, holm, mean_interval, t_quantile


def test_flips_give_the_share_of_all_assignments() -> None:
    first, second = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 4.0, 2.5, 8.0])
    differences = second - first
    exact = np.mean([abs(np.dot(signs, differences)) >= differences.sum() for signs in product((1, -1), repeat=4)])
    assert flip_means(first, second) == pytest.approx(exact, abs=0.02)
    assert flip_means(first, first) == 1


def test_flips_agree_with_a_t_test_on_many_images() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=200)
    second = first + rng.normal(0.1, 0.6, size=200)
    assert flip_means(first, second) == pytest.approx(stats.ttest_rel(first, second).pvalue, abs=0.02)


def test_seeds_make_tests_repeatable() -> None:
    first, second = np.array([1.0, 2.0, 5.0]), np.array([2.0, 1.0, 3.5])
    assert flip_means(first, second, seed=3) == flip_means(first, second, seed=3)


def test_coins_are_the_same_however_many_come_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = np.concatenate(list(coins(7, 50, seed=3)))
    assert together.shape == (50, 7) and set(np.unique(together)) == {0, 1}
    monkeypatch.setattr(paired_tests, "_COINS_PER_PASS", 20)
    parts = list(coins(7, 50, seed=3))
    assert len(parts) == 25
    assert np.array_equal(np.concatenate(parts), together)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 9, 10, 29, 100, 4999])
@pytest.mark.parametrize("p", [0.5, 0.75, 0.975, 0.9995])
def test_quantiles_are_those_of_students_t(p: float, degrees: int) -> None:
    assert t_quantile(p, degrees) == pytest.approx(stats.t.ppf(p, degrees), rel=1e-6, abs=1e-9)


def test_the_interval_of_a_mean() -> None:
    values = np.array([1.0, 2.0, 3.0, 6.0])  # mean 3, sd 2.1602, t(0.975; 3) = 3.1824
    low, high = mean_interval(values) or (0, 0)
    assert (low, high) == (pytest.approx(3 - 3.1824 * 2.1602 / 2, abs=1e-3), pytest.approx(6.4374, abs=1e-3))
    assert mean_interval(np.full(5, 0.25)) == (0.25, 0.25)
    assert mean_interval(np.array([1.0])) is None and mean_interval(np.array([])) is None


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02] and holm([]) == []
