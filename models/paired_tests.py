"""Whether two captioners differ on the same images: intervals, permutation p values, correction for several pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

FLIPS = 10_000
_ROWS_PER_PASS = 500
_COINS_PER_PASS = 2_000_000


def flip_means(first: np.ndarray, second: np.ndarray, seed: int = 0) -> float:
    """p, two-sided, of the difference of the means of paired values (N,).

    A permutation test: how often are the means as different when it is a coin that says, image by image, which
    captioner is which? The true assignment counts as one of the coins.
    """
    differences = second - first
    found = (np.abs((1 - 2 * flips) @ differences) for flips in coins(len(first), FLIPS, seed))
    return share_as_great(np.concatenate(list(found)), abs(float(differences.sum())))


def coins(images: int, count: int, seed: int) -> Iterator[np.ndarray]:
    """Zeros and ones (rows, N), ``count`` rows in all, which do not depend on how many come at a time."""
    rng = np.random.default_rng(seed)
    rows = min(_ROWS_PER_PASS, max(1, _COINS_PER_PASS // max(1, images)))
    for start in range(0, count, rows):
        yield rng.integers(2, size=(min(rows, count - start), images))


def share_as_great(found: np.ndarray, observed: float) -> float:
    """The share of coins by which the difference is as great; sums in another order differ in their last bits."""
    return (int((found >= observed * (1 - 1e-9) - 1e-12).sum()) + 1) / (len(found) + 1)


def mean_interval(values: np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """Student's interval of the mean of values (N,); None for fewer than two."""
    if len(values) < 2:
        return None
    reach = t_quantile((1 + level) / 2, len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    centre = float(values.mean())
    return centre - reach, centre + reach


def holm(p_values: Sequence[float]) -> list[float]:
    """p values that hold for all the tests together, in the given order (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted


def t_quantile(p: float, degrees: int) -> float:
    """The value that Student's t with whole ``degrees`` of freedom stays below with probability ``p``, 0.5 to 1."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 2 * p - 1 else (low, middle)
    return math.tan(low) * math.sqrt(degrees)


def _within(angle: float, degrees: int) -> float:
    """P(abs(t) <= sqrt(degrees) tan(angle)): Abramowitz and Stegun 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees == 1:
        return 2 * angle / math.pi
    if degrees % 2:
        k = np.arange(1, (degrees - 1) // 2)
        terms = np.cumprod(2 * k / (2 * k + 1) * cosine**2)
        return 2 / math.pi * (angle + sine * cosine * (1 + float(terms.sum())))
    k = np.arange(1, degrees // 2)
    return sine * (1 + float(np.cumprod((2 * k - 1) / (2 * k) * cosine**2).sum()))
