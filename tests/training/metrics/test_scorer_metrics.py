"""CLIPScore and self-retrieval against values worked out by hand and a slow twin."""

import math

import pytest
import torch

from tests.training.metrics.helpers import compute, scored
from training.metrics.retrieval import own_ranks, summarize


def test_clip_score_clamps_before_the_mean() -> None:
    images = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    captions = torch.tensor([[0.6, 0.8], [-1.0, 0.0]])  # cosines .6 and -1
    assert compute("clip_score", scored(images, captions))["clip_score"] == pytest.approx(2.5 * 0.6 / 2)


def test_clip_score_takes_the_prefixed_captions_and_retrieval_the_plain_ones() -> None:
    images = torch.eye(2)
    inputs = scored(images, images.flip(0), prefixed=images)
    assert compute("clip_score", inputs)["clip_score"] == pytest.approx(2.5)
    assert compute("self_retrieval", inputs)["r_at_1"] == 0.0


def test_self_retrieval_by_hand() -> None:
    images = torch.eye(3)
    captions = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.6, 0.8]])
    # Ranks: 1; image 1 is higher and image 3 ties with the own image 2: 1 + 1 + 1/2; 1.
    assert compute("self_retrieval", scored(images, captions)) == {
        "r_at_1": pytest.approx(2 / 3),
        "r_at_5": 1.0,
        "r_at_10": 1.0,
        "mean_rank": 1.5,
        "median_rank": 1.0,
    }


def test_equal_captions_and_equal_images_share_the_middle_rank() -> None:
    same = torch.tensor([[1.0, 0.0]]).expand(5, 2)
    assert own_ranks(same, same, torch.arange(5)).tolist() == [3.0] * 5


def test_ranks_equal_a_full_sort() -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.nn.functional.normalize(torch.randn(2100, 8, generator=generator), dim=1)  # more than two passes
    pool = torch.nn.functional.normalize(torch.randn(50, 8, generator=generator), dim=1)
    own = torch.randint(50, (2100,), generator=generator)
    order = (queries.double() @ pool.double().T).argsort(dim=1, descending=True)
    slow = [row.index(target) + 1 for row, target in zip(order.tolist(), own.tolist(), strict=True)]
    assert (own_ranks(queries, pool, own) - torch.tensor(slow)).abs().max() <= 0.5  # near ties count half


def test_summary_of_ranks() -> None:
    summary = summarize(torch.tensor([1.0, 1.5, 5.0, 6.0, 11.0, 20.0]))
    assert summary == {
        "r_at_1": 1 / 6,
        "r_at_5": 3 / 6,
        "r_at_10": 4 / 6,
        "mean_rank": pytest.approx(44.5 / 6),
        "median_rank": 5.5,
    }
    assert all(math.isfinite(value) for value in summary.values())
