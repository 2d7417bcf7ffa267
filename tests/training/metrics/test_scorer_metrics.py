"""CLIPScore, RefCLIPScore and retrieval against values worked out by hand and a slow twin."""

import math
from dataclasses import replace

import pytest
import torch

from tests.training.metrics.helpers import compute, scored, texts
from training.metrics.interface import MetricInputs
from training.metrics.own_retrieval import OwnRetrieval
from training.metrics.retrieval import own_ranks, summarize
from training.metrics.self_retrieval import SelfRetrieval


def test_clip_score_clamps_before_the_mean() -> None:
    images = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    captions = torch.tensor([[0.6, 0.8], [-1.0, 0.0]])  # cosines .6 and -1
    assert compute("clip_score", scored(images, captions))["clip_score"] == pytest.approx(2.5 * 0.6 / 2)


def test_clip_score_takes_the_prefixed_captions_and_retrieval_the_plain_ones() -> None:
    images = torch.eye(2)
    inputs = scored(images, images.flip(0), prefixed=images)
    assert compute("clip_score", inputs)["clip_score"] == pytest.approx(2.5)
    assert compute("self_retrieval", inputs)["r_at_1"] == 0.0


def referenced(cosine: float, *references: float) -> MetricInputs:
    """One image whose caption has this cosine to it, and to its references those."""
    caption = torch.tensor([1.0, 0.0, 0.0])
    image = torch.tensor([cosine, math.sqrt(1 - cosine**2), 0.0])
    others = torch.stack([torch.tensor([of, 0.0, math.sqrt(1 - of**2)]) for of in references])
    inputs = scored(image[None], torch.zeros(1, 3), prefixed=caption[None])
    assert inputs.features is not None
    return replace(inputs, features=replace(inputs.features, prefixed_references=(others,)))


@pytest.mark.parametrize(
    ("cosine", "references", "expected"),
    [
        (0.3, (0.8,), 0.774194),  # CLIPScore .75 with .8
        (0.3, (0.1, 0.8, -0.5), 0.774194),
        (-0.2, (0.8,), 0.0),
        (0.3, (-0.1,), 0.0),
        (-0.2, (-0.1,), 0.0),
        (0.4, (1.0,), 1.0),
    ],
)
def test_ref_clip_score_golden_values(cosine: float, references: tuple[float, ...], expected: float) -> None:
    got = compute("ref_clip_score", referenced(cosine, *references))["ref_clip_score"]
    assert got == pytest.approx(expected, abs=1e-6)
    assert compute("clip_score", referenced(0.3, 0.8))["clip_score"] == pytest.approx(0.75)


def test_ref_clip_score_averages_last() -> None:
    first, second = referenced(0.3, 0.8).features, referenced(0.4, 1.0, 0.2).features
    assert first is not None and first.prefixed_references is not None
    assert second is not None and second.prefixed_references is not None
    both = replace(
        first,
        images=torch.cat([first.images, second.images]),
        prefixed_texts=torch.cat([first.prefixed_texts, second.prefixed_texts]),
        prefixed_references=first.prefixed_references + second.prefixed_references,
    )
    inputs = replace(texts("a", "b"), features=both)
    assert compute("ref_clip_score", inputs)["ref_clip_score"] == pytest.approx((0.774194 + 1) / 2, abs=1e-6)


def test_distractors_join_the_pool() -> None:
    inputs = scored(torch.eye(4)[:2], torch.tensor([[0.8, 0, 0.6, 0], [0, 0.6, 0.8, 0]]))
    assert inputs.features is not None
    distracted = replace(inputs, features=replace(inputs.features, distractors=torch.eye(4)[2:]))
    assert compute("self_retrieval", distracted)["mean_rank"] == 1.0
    assert compute("self_retrieval", distracted, distractors=True)["mean_rank"] == 1.5  # ranks 1 and 2
    metric = SelfRetrieval(SelfRetrieval.Options(distractors=True))
    assert metric.notes(distracted) == ("pool of 2 images and 2 distractors",)
    assert metric.needs - inputs.gives == {"distractors"}
    assert SelfRetrieval().needs == {"scorer"}


def test_own_retrieval_by_hand() -> None:
    # Image 1: best. Image 2: one better, one within rounding, one worse. Image 3: all better.
    logprobs = torch.tensor([[-1.0, -9, -9, -2], [-3, -4, -4.00001, -7], [-1, -1, -5, -4]])
    inputs = replace(texts("a", "b", "c"), logprobs=logprobs)
    assert compute("own_retrieval", inputs, at=[1, 3]) == {
        "own_r_at_1": pytest.approx(1 / 3),
        "own_r_at_3": pytest.approx(2 / 3),
        "own_mean_rank": pytest.approx((1 + 2.5 + 4) / 3),
        "own_median_rank": 2.5,
    }
    assert OwnRetrieval().notes(inputs) == ("pool of 4 images",)


def test_retrieval_values_of_each_image() -> None:
    images = torch.eye(3)
    captions = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.6, 0.8]])
    assert SelfRetrieval().per_image(scored(images, captions)) == {
        "r_at_1": [1.0, 0.0, 1.0],
        "r_at_5": [1.0] * 3,
        "r_at_10": [1.0] * 3,
        "mean_rank": [1.0, 2.5, 1.0],
        "median_rank": [1.0, 2.5, 1.0],
    }


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
