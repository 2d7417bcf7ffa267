"""CLIPScore as a reward: by its definition, with the scorer's prefix and unit features."""

import pytest
import torch
from torch.nn.functional import normalize

from models.clip_scorer import ClipScorer
from tests.models.families.tiny_models import images
from training.objectives.interface import Resources
from training.rewards.clip_score import ClipScoreReward

CAPTIONS = [["a dog", "the child plays"], ["a man", "a man"]]


def test_by_its_definition(resources: Resources, scorer: ClipScorer) -> None:
    assert resources.image_features is not None
    found = ClipScoreReward(resources)([2, 0], CAPTIONS)
    for row, image in enumerate([2, 0]):
        picture = normalize(resources.image_features[image], dim=0)
        for column, caption in enumerate(CAPTIONS[row]):
            text = scorer.encode_texts([caption], prefix=True)[0]
            cosine = float((picture * text).sum())
            assert float(found[row, column]) == pytest.approx(2.5 * max(cosine, 0), abs=1e-6)


def test_it_is_the_score_that_the_scorer_gives_the_picture(resources: Resources, scorer: ClipScorer) -> None:
    pictures = images(3)
    expected = scorer.score([pictures[1]], [CAPTIONS[0]])
    torch.testing.assert_close(ClipScoreReward(resources)([1], CAPTIONS[:1]), torch.tensor(expected))
