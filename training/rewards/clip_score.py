"""CLIPScore as a reward."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from training.objectives.interface import Resources


class ClipScoreReward:
    """CLIPScore of a caption and its picture (Hessel et al. 2021), under the scorer's prefix and weight."""

    def __init__(self, resources: Resources) -> None:
        assert resources.scorer is not None and resources.image_features is not None
        self._scorer = resources.scorer
        self._images = normalize(resources.image_features, dim=-1)

    def __call__(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> Tensor:
        scores = self._scorer.score(None, captions, image_features=self._images[list(images)])
        return torch.tensor(scores)
