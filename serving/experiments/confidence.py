"""Intervals for means and their differences: at one moment, and valid at every moment that somebody looks."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

ALPHA = 0.05
TUNED_UNITS_PER_ARM = 2000
"""Where the confidence sequence is narrowest; it holds at any number."""

Interval = tuple[float, float]
Floats = NDArray[np.float64]
Values = Floats | float


@dataclass(frozen=True)
class Sample:
    """What an interval needs of one arm: the number of its units, their mean and their variance (over n - 1)."""

    n: int
    mean: float
    variance: float


def mean_interval(sample: Sample, alpha: float = ALPHA) -> Interval | None:
    """Student's t interval of the mean; None below two units."""
    if sample.n < 2:
        return None
    half = _t_quantile(sample.n - 1, alpha) * math.sqrt(sample.variance / sample.n)
    return sample.mean - half, sample.mean + half


def welch_interval(a: Sample, b: Sample, alpha: float = ALPHA) -> Interval | None:
    """Interval of mean a - mean b at one moment that was fixed beforehand (Welch, 1947); None below two units."""
    if min(a.n, b.n) < 2:
        return None
    va, vb = a.variance / a.n, b.variance / b.n
    effect = a.mean - b.mean
    if va + vb == 0:
        return effect, effect
    degrees = (va + vb) ** 2 / (va**2 / (a.n - 1) + vb**2 / (b.n - 1))
    half = _t_quantile(degrees, alpha) * math.sqrt(va + vb)
    return effect - half, effect + half


def pooled_sd(a: Sample, b: Sample) -> float:
    """The standard deviation that effects are told in (Cohen's d); 0 below three units."""
    return float(np.sqrt(_pooled_variance(a.n, a.variance, b.n, b.variance))) if a.n + b.n > 2 else 0.0


def confidence_sequence(a: Sample, b: Sample, alpha: float = ALPHA) -> Interval | None:
    """Interval of mean a - mean b that holds at all moments at once with probability 1 - alpha.

    None below two units, and where the scores of both arms do not scatter at all, as those of a broken scorer.
    """
    if min(a.n, b.n) < 2 or a.variance + b.variance == 0:
        return None
    effect, half = a.mean - b.mean, float(half_width(a.n, a.variance, b.n, b.variance, alpha))
    return effect - half, effect + half


def half_width(n_a: Values, variance_a: Values, n_b: Values, variance_b: Values, alpha: float) -> Floats:
    """Half the width of the confidence sequence, element by element.

    Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence
    sequences" (Annals of Statistics 52, 2024; arXiv 2103.06476), theorem 2.2: mean +- s boundary(t), where t counts
    observations of variance s^2. A difference of two means knows as much as t = s^2 / (va/na + vb/nb) observations do,
    and information is the time that its process runs in, so that is the t here, whatever the sizes and variances.
    """
    pooled = _pooled_variance(n_a, variance_a, n_b, variance_b)
    t = pooled / (np.divide(variance_a, n_a) + np.divide(variance_b, n_b))
    return np.asarray(np.sqrt(pooled) * boundary(t, alpha))


def boundary(t: Floats, alpha: float) -> Floats:
    """The normal mixture of Robbins: half the width in standard deviations after ``t`` observations."""
    rho2 = tuned_rho2(TUNED_UNITS_PER_ARM / 2, alpha)  # t = 1 / (1/n + 1/n) = n/2
    spread = t * rho2 + 1
    return np.sqrt(2 * spread / (t * t * rho2) * np.log(np.sqrt(spread) / alpha))


def tuned_rho2(t: float, alpha: float) -> float:
    """The rho^2 that makes the boundary about as low as it can be at ``t`` (same paper, on the choice of rho)."""
    log = -2 * math.log(alpha)
    return (log + math.log(log) + 1) / t


def _pooled_variance(n_a: Values, variance_a: Values, n_b: Values, variance_b: Values) -> Floats:
    total = np.multiply(np.subtract(n_a, 1), variance_a) + np.multiply(np.subtract(n_b, 1), variance_b)
    return np.asarray(total / (np.add(n_a, n_b) - 2))


def _t_quantile(degrees: float, alpha: float) -> float:
    return float(stdtrit(degrees, 1 - alpha / 2))
