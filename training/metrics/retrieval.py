"""Ranks of text-to-image retrieval, and the usual summary of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch

from training.metrics.interface import Definition

AT = (1, 5, 10)

# Features of equal pictures differ in the last bits when they were computed in different batches.
_EQUAL = 1e-6
_QUERIES_PER_PASS = 1024


def own_ranks(queries: torch.Tensor, pool: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Rank (Q,) of each query's own row of the pool by dot product: 1 + how many are higher + half of the ties.

    Args:
        queries: unit features (Q, D).
        pool: unit features (N, D).
        own: index (Q,) of each query's own row.
    """
    parts = [slice(start, start + _QUERIES_PER_PASS) for start in range(0, len(queries), _QUERIES_PER_PASS)]
    return torch.cat([ranks_of_own(queries[part] @ pool.T, own[part], _EQUAL) for part in parts])


def ranks_of_own(scores: torch.Tensor, own: torch.Tensor, equal: float) -> torch.Tensor:
    """Rank (Q,) of column ``own`` (Q,) in each row of the scores (Q, N): 1 + how many are higher + half of the ties.

    Args:
        equal: scores that differ by at most this are a tie.
    """
    above = scores - scores.gather(1, own[:, None])
    higher = (above > equal).sum(dim=1)
    tied = (above.abs() <= equal).sum(dim=1) - 1  # the own column ties with itself
    return 1 + higher + tied / 2


def per_query(ranks: torch.Tensor, at: Sequence[int] = AT) -> dict[str, list[float]]:
    """What the numbers of ``define`` are the mean or median of, for each query."""
    values = [float(rank) for rank in ranks.tolist()]
    recalls = {f"r_at_{k}": [float(rank <= k) for rank in values] for k in at}
    return {**recalls, "mean_rank": values, "median_rank": values}


def summarize(ranks: torch.Tensor) -> dict[str, float]:
    """R@1, R@5 and R@10 (0..1), mean and median rank."""
    values = per_query(ranks)
    means = {name: statistics.fmean(of) for name, of in values.items()}
    return {**means, "median_rank": float(statistics.median(values["median_rank"]))}


def define(query: str, by: str = "cosine", at: Sequence[int] = AT) -> dict[str, Definition]:
    """Definitions of R@k, mean and median rank for queries described by ``query``, ranked by ``by``."""
    ties = "ties count half"
    recalls = {
        f"r_at_{k}": Definition(
            f"share of {query} whose own image ranks at most {k} by {by}, {ties}; 0..1", 100.0, "mean"
        )
        for k in at
    }
    mean = f"mean 1-based rank of the own image for {query}, {ties}"
    median = f"median 1-based rank of the own image for {query}, {ties}"
    return {
        **recalls,
        "mean_rank": Definition(mean, over_images="mean"),
        "median_rank": Definition(median, over_images="median"),
    }
