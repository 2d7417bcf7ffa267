"""Captions by the entropy of their retrieval."""

import math

import pytest
import torch
from torch import Tensor

from models.clip_scorer import ClipScorer, load_scorer
from tests.tiny_scorer import write_tiny_scorer
from training.data import Example
from training.uncertain import UncertainPairs, keep_pairs, retrieval_entropy


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> ClipScorer:
    return load_scorer(f"local-dir:{write_tiny_scorer(tmp_path_factory.mktemp('scorer'))}")


@pytest.fixture
def examples(tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    path = tmp_path_factory.getbasetemp() / "none.png"
    texts = [("a dog", "a cat"), ("dog dog", "cat cat x"), ("x", "a photo")]
    return [Example(str(number), path, captions) for number, captions in enumerate(texts)]


def slow_entropy(scorer: ClipScorer, text: str, images: Tensor) -> float:
    row = scorer.encode_texts([text], prefix=False)[0]
    scale = float(scorer.model.logit_scale.exp())
    weights = [math.exp(scale * float(row @ (image / image.norm()))) for image in images]
    shares = [weight / sum(weights) for weight in weights]
    return -sum(share * math.log(share) for share in shares)


def test_entropy_against_a_slow_twin(scorer: ClipScorer) -> None:
    images = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    found = retrieval_entropy(scorer, ["a dog", "cat"], images)
    assert found.tolist() == pytest.approx([slow_entropy(scorer, text, images) for text in ("a dog", "cat")], rel=1e-4)


def test_a_caption_that_fits_every_picture_has_the_most_entropy(scorer: ClipScorer) -> None:
    same = torch.ones(5, 16)
    assert retrieval_entropy(scorer, ["a dog"], same).tolist() == pytest.approx([math.log(5)], rel=1e-4)
    assert len(retrieval_entropy(scorer, [], same)) == 0


@pytest.mark.parametrize("keep", ["highest", "lowest"])
def test_the_share_is_of_pairs_and_pictures_without_any_are_left_out(
    scorer: ClipScorer, examples: list[Example], keep: str
) -> None:
    images = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    pairs = UncertainPairs.model_validate({"fraction": 0.5, "keep": keep})
    kept = keep_pairs(examples, pairs, scorer, images)
    texts = [text for example in examples for text in example.captions]
    ranked = sorted(texts, key=lambda text: slow_entropy(scorer, text, images), reverse=keep == "highest")
    assert sorted(text for example in kept for text in example.captions) == sorted(ranked[:3])
    assert all(example.captions for example in kept)


def test_everything_can_be_kept(scorer: ClipScorer, examples: list[Example]) -> None:
    images = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    assert keep_pairs(examples, UncertainPairs(fraction=1.0), scorer, images) == tuple(examples)
