"""Random choice of tokens that depends on the image's seed and its caption's number only."""

import numpy as np
import torch
from torch import Tensor

from models.decoding.options import SharedOptions
from models.decoding.row_search import RowSearch
from models.decoding.strategy import Plan


def sample_search(plan: Plan, options: SharedOptions, temperature: float, top_k: int, top_p: float) -> RowSearch:
    """A search whose rows draw their tokens from the truncated distribution."""
    steps = int(plan.limits.max())
    draws = np.stack([uniforms(seed, caption, steps) for seed in plan.seeds for caption in range(plan.rows)])
    numbers = torch.from_numpy(draws).to(plan.limits.device)  # (R, steps), fp64

    def choose(scores: Tensor, drawn: Tensor) -> Tensor:
        return draw(keep_top_p(keep_top_k(scores / temperature, top_k), top_p), drawn)

    return RowSearch(plan, options, choose, numbers)


def uniforms(seed: int, caption: int, steps: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Numbers (steps,) in [0, 1): the ``caption``-th stream of ``seed``; fewer steps give a prefix of it."""
    key = np.array([seed, caption], dtype=np.uint64)  # counter-based: no state is shared between captions
    return np.random.Generator(np.random.Philox(key=key)).random(steps)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Logits (R, V) with -inf below the k-th best of each row; ties with it stay; 0 keeps all."""
    if k == 0:
        return logits
    worst = logits.topk(min(k, logits.shape[1])).values[:, -1:]
    return logits.masked_fill(logits < worst, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Logits (R, V) with -inf for the least probable tokens that together hold at most 1-p; the best stays."""
    if p == 1.0:
        return logits
    ascending, order = logits.sort(dim=-1)
    drop = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - p
    drop[:, -1] = False
    return logits.masked_fill(drop.scatter(1, order, drop), -torch.inf)


def draw(logits: Tensor, numbers: Tensor) -> Tensor:
    """Tokens (R,) where the numbers (R,) in [0, 1) fall on each row's cumulative distribution, in vocabulary order.

    fp64, so that rounding neither reaches a token of probability 0 nor moves with the batch.
    """
    cumulative = logits.double().softmax(dim=-1).cumsum(dim=-1)  # (R, V)
    points = numbers.unsqueeze(1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, points, right=True).squeeze(1)
