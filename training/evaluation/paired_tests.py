"""Paired tests of two captioners on the same images beside those of ``models.paired_tests``: p values, two-sided.

But for McNemar's they are permutation tests: how often is a number as different when it is a coin that says, image by
image, which captioner is which? The true assignment counts as one of the coins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from models.paired_tests import FLIPS, coins, share_as_great

SWAPS = 1_000

C = TypeVar("C")


def mcnemar_exact(first: np.ndarray, second: np.ndarray) -> float:
    """p of zeros and ones (N,): whether the images on which the two differ favour one of them (sign test)."""
    gained, lost = int((second > first).sum()), int((second < first).sum())
    differing = gained + lost
    tail = sum(math.comb(differing, k) for k in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / int(2**differing))


def swap_medians(first: np.ndarray, second: np.ndarray, seed: int = 0) -> float:
    """p of the difference of the medians of values (N,)."""
    parts = []
    for flips in coins(len(first), FLIPS, seed):
        one, other = np.where(flips, second, first), np.where(flips, first, second)
        parts.append(np.abs(np.median(other, axis=1) - np.median(one, axis=1)))
    return share_as_great(np.concatenate(parts), abs(float(np.median(second) - np.median(first))))


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
    rows = [differences(coin) for flips in coins(len(pairs), SWAPS, seed) for coin in flips.tolist()]
    return {name: share_as_great(np.array([row[name] for row in rows]), observed[name]) for name in observed}


def bootstrap_p(differences: np.ndarray) -> float:
    """p of the differences (B,) on bootstrap samples: twice the share that lies on the other side of 0."""
    beyond = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (beyond + 1) / (len(differences) + 1))
