"""Paired tests of two captioners on the same images: p values, two-sided.

But for McNemar's they are permutation tests: how often is a number as different when it is a coin that says, image by
image, which captioner is which? The true assignment counts as one of the coins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

FLIPS = 10_000
SWAPS = 1_000
_PER_PASS = 500

C = TypeVar("C")


def mcnemar_exact(first: np.ndarray, second: np.ndarray) -> float:
    """p of zeros and ones (N,): whether the images on which the two differ favour one of them (sign test)."""
    gained, lost = int((second > first).sum()), int((second < first).sum())
    differing = gained + lost
    tail = sum(math.comb(differing, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / int(2**differing))


def flip_means(first: np.ndarray, second: np.ndarray, seed: int = 0) -> float:
    """p of the difference of the means of values (N,)."""
    differences = second - first
    found = (np.abs((1 - 2 * coins) @ differences) for coins in _coins(len(first), FLIPS, seed))
    return _share(np.concatenate(list(found)), abs(float(differences.sum())))


def swap_medians(first: np.ndarray, second: np.ndarray, seed: int = 0) -> float:
    """p of the difference of the medians of values (N,)."""
    parts = []
    for coins in _coins(len(first), FLIPS, seed):
        one, other = np.where(coins, second, first), np.where(coins, first, second)
        parts.append(np.abs(np.median(other, axis=1) - np.median(one, axis=1)))
    return _share(np.concatenate(parts), abs(float(np.median(second) - np.median(first))))


def swap_counts(
    first: Sequence[C], second: Sequence[C], combine: Callable[[Sequence[C]], Mapping[str, float]], seed: int = 0
) -> dict[str, float]:
    """p of the difference of every number that ``combine`` makes of the counts of N images."""
    pairs = list(zip(first, second, strict=True))

    def differences(coin: Sequence[int]) -> dict[str, float]:
        one = combine([pair[side] for pair, side in zip(pairs, coin, strict=True)])
        other = combine([pair[1 - side] for pair, side in zip(pairs, coin, strict=True)])
        return {name: abs(other[name] - one[name]) for name in one}

    observed = differences([0] * len(pairs))
    rows = [differences(coin) for coins in _coins(len(pairs), SWAPS, seed) for coin in coins.tolist()]
    return {name: _share(np.array([row[name] for row in rows]), observed[name]) for name in observed}


def bootstrap_p(differences: np.ndarray) -> float:
    """p of the differences (B,) on bootstrap samples: twice the share that lies on the other side of 0."""
    beyond = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (beyond + 1) / (len(differences) + 1))


def _coins(images: int, count: int, seed: int) -> Iterator[np.ndarray]:
    """Zeros and ones (up to ``_PER_PASS``, N), ``count`` rows in all."""
    rng = np.random.default_rng(seed)
    for start in range(0, count, _PER_PASS):
        yield rng.integers(2, size=(min(_PER_PASS, count - start), images))


def _share(found: np.ndarray, observed: float) -> float:
    """The share of coins by which the difference is as great; sums in another order differ in their last bits."""
    return (int((found >= observed * (1 - 1e-9) - 1e-12).sum()) + 1) / (len(found) + 1)
