"""How well a caption retrieves its picture: by its definition."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from models.clip_scorer import ClipScorer
from training.objectives.interface import Resources
from training.rewards.retrieval import RetrievalReward

CAPTIONS = [["a dog", "the child plays", "a red shirt"], ["a man", "on grass", "a dog"]]


def test_log_p_of_the_own_picture_among_all(resources: Resources, scorer: ClipScorer) -> None:
    assert resources.image_features is not None
    found = RetrievalReward(resources)([2, 0], CAPTIONS)
    scale = float(scorer.model.logit_scale.exp())
    assert scale > 2  # otherwise this would not tell the temperature from none
    pictures = [normalize(features, dim=0) for features in resources.image_features]
    for row, image in enumerate([2, 0]):
        for column, caption in enumerate(CAPTIONS[row]):
            text = scorer.encode_texts([caption], prefix=False)[0]
            logits = [scale * float((picture * text).sum()) for picture in pictures]
            expected = logits[image] - math.log(sum(map(math.exp, logits)))
            assert float(found[row, column]) == pytest.approx(expected, abs=1e-4)


def test_probabilities_of_one_caption_over_all_pictures_sum_to_one(resources: Resources) -> None:
    reward = RetrievalReward(resources)
    probabilities = [float(reward([image], [["a dog"]]).exp()) for image in range(3)]
    assert sum(probabilities) == pytest.approx(1, abs=1e-5)
    assert len(set(probabilities)) == 3


def test_lengths_of_the_pictures_features_do_not_count(resources: Resources) -> None:
    assert resources.image_features is not None
    stretched = Resources(
        resources.examples,
        scorer=resources.scorer,
        image_features=resources.image_features * torch.tensor([[3.0], [0.5], [7.0]]),
    )
    torch.testing.assert_close(
        RetrievalReward(resources)([0, 1], CAPTIONS), RetrievalReward(stretched)([0, 1], CAPTIONS)
    )
