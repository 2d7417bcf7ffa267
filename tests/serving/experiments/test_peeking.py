"""Experiments that somebody looks at after every image: how often a verdict comes that should not, and that should."""

from collections.abc import Callable

import numpy as np
import pytest

from serving.experiments.confidence import ALPHA, Floats, half_width
from serving.experiments.statistics import MIN_UNITS

RUNS = 1000
CHUNK = 250
Generator = np.random.Generator


def looks(arm: Floats, units: Floats, sums: Floats, squares: Floats) -> Floats:
    """The verdict after each arrival [..., N]: 1 for a, -1 for b, 0 for undecided.

    Args:
        arm: whether it belongs to arm a.
        units, sums, squares: what it adds to the number of units, to the sum of their scores, and of their squares.
    """
    (n_a, m_a, v_a), (n_b, m_b, v_b) = (_moments(units, sums, squares, side) for side in (arm, 1 - arm))
    enough = np.minimum(n_a, n_b) >= MIN_UNITS
    with np.errstate(divide="ignore", invalid="ignore"):
        half = half_width(n_a, v_a, n_b, v_b, ALPHA)
    return np.where(enough & (np.abs(m_a - m_b) > half), np.sign(m_a - m_b), 0)


def _moments(units: Floats, sums: Floats, squares: Floats, side: Floats) -> tuple[Floats, Floats, Floats]:
    n, s, q = (np.cumsum(part * side, axis=-1) for part in (units, sums, squares))
    mean = s / np.maximum(n, 1)
    return n, mean, np.maximum(q - n * mean**2, 0) / np.maximum(n - 1, 1)


def one_image(rng: Generator, draw: Callable[..., Floats], units: int, share: float, effect_sd: float = 0) -> Floats:
    """Verdicts [CHUNK, units] of runs where every unit sends one image, and ``share`` of them see arm a."""
    shape = (CHUNK, units)
    arm = (rng.random(shape) < share) * 1.0
    score = draw(rng, shape) + effect_sd * arm
    return looks(arm, np.ones(shape), score, score**2)


def many_images(rng: Generator, units: int, arrivals: Callable[..., Floats], images: int = 10) -> Floats:
    """Verdicts [units x images] of one run: images of a unit correlate at .5, and its mean moves with each of them."""
    score = np.sqrt(0.5) * (rng.standard_normal((units, 1)) + rng.standard_normal((units, images)))
    means = np.cumsum(score, axis=1) / np.arange(1, images + 1)
    first = np.zeros((units, images))
    first[:, 0] = 1
    arm = np.broadcast_to((rng.random((units, 1)) < 0.5) * 1.0, score.shape)
    order = np.argsort(arrivals(rng, units, images), axis=None)
    added = (first, np.diff(means, prepend=0, axis=1), np.diff(means**2, prepend=0, axis=1))
    return looks(*(part.ravel()[order] for part in (arm, *added)))


def interleaved(rng: Generator, units: int, images: int) -> Floats:
    """Times [units, images] in order: everybody is there all the time."""
    return np.sort(rng.random((units, images)), axis=1)


def sessions(rng: Generator, units: int, images: int) -> Floats:
    """One unit after the other, a few at a time."""
    return np.arange(units)[:, None] + np.cumsum(3 * rng.random((units, images)), axis=1)


def normal(rng: Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_normal(shape)


def skewed(rng: Generator, shape: tuple[int, int]) -> Floats:
    """Variance 1, skewness 2."""
    return rng.standard_exponential(shape)


def false_share(verdicts: list[Floats]) -> float:
    return float(np.mean(np.concatenate([(chunk != 0).any(axis=-1).ravel() for chunk in verdicts])))


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("draw", [normal, skewed])
def test_a_against_a(draw: Callable[..., Floats], share: float) -> None:
    rng = np.random.default_rng(11)
    found = false_share([one_image(rng, draw, 4000, share) for _ in range(RUNS // CHUNK)])
    assert 0 < found <= ALPHA


@pytest.mark.parametrize("arrivals", [interleaved, sessions])
def test_a_against_a_with_many_images_of_each_unit(arrivals: Callable[..., Floats]) -> None:
    rng = np.random.default_rng(12)
    assert false_share([many_images(rng, 1000, arrivals) for _ in range(RUNS)]) <= ALPHA


@pytest.mark.parametrize("draw", [normal, skewed])
def test_a_true_effect_is_found_by_2000_units_per_arm(draw: Callable[..., Floats]) -> None:
    rng = np.random.default_rng(14)
    verdicts = np.concatenate([one_image(rng, draw, 4000, 0.5, effect_sd=0.15) for _ in range(RUNS // CHUNK)])
    assert (verdicts == 1).any(axis=1).mean() >= 0.9
    assert (verdicts == -1).any(axis=1).mean() <= 0.01


def test_the_usual_interval_would_not_do() -> None:
    """The test can fail: looking at every arrival, a 95 % interval for one look is wrong far more often."""
    rng = np.random.default_rng(15)
    score = rng.standard_normal((CHUNK, 4000))
    arm = (rng.random(score.shape) < 0.5) * 1.0
    (n_a, m_a, v_a), (n_b, m_b, v_b) = (_moments(np.ones_like(arm), score, score**2, side) for side in (arm, 1 - arm))
    outside = np.abs(m_a - m_b) > 1.96 * np.sqrt(v_a / np.maximum(n_a, 1) + v_b / np.maximum(n_b, 1))
    assert (outside & (np.minimum(n_a, n_b) >= MIN_UNITS)).any(axis=1).mean() > 0.2
