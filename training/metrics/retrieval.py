"""Ranks of text-to-image retrieval, and the usual summary of them."""

from __future__ import annotations

import statistics

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
    ranks = []
    for start in range(0, len(queries), _QUERIES_PER_PASS):
        part = slice(start, start + _QUERIES_PER_PASS)
        similarity = queries[part] @ pool.T  # (q, N)
        above = similarity - similarity.gather(1, own[part, None])
        higher = (above > _EQUAL).sum(dim=1)
        tied = (above.abs() <= _EQUAL).sum(dim=1) - 1  # the own row ties with itself
        ranks.append(1 + higher + tied / 2)
    return torch.cat(ranks)


def summarize(ranks: torch.Tensor) -> dict[str, float]:
    """R@1, R@5 and R@10 (0..1), mean and median rank."""
    values = ranks.tolist()
    recalls = {f"r_at_{k}": sum(rank <= k for rank in values) / len(values) for k in AT}
    return {**recalls, "mean_rank": statistics.fmean(values), "median_rank": float(statistics.median(values))}


def define(query: str) -> dict[str, Definition]:
    """Definitions of what ``summarize`` returns, for queries described by ``query``."""
    ties = "ties count half"
    recalls = {
        f"r_at_{k}": Definition(f"share of {query} whose own image ranks at most {k} by cosine, {ties}; 0..1", 100.0)
        for k in AT
    }
    return {
        **recalls,
        "mean_rank": Definition(f"mean 1-based rank of the own image for {query}, {ties}"),
        "median_rank": Definition(f"median 1-based rank of the own image for {query}, {ties}"),
    }
