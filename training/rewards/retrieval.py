"""How well a caption retrieves its picture."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from training.objectives.interface import Resources


class RetrievalReward:
    """log p(picture | caption) over all training pictures, at the scorer's own temperature, in nats."""

    def __init__(self, resources: Resources) -> None:
        assert resources.scorer is not None and resources.image_features is not None
        self._scorer = resources.scorer
        self._images = normalize(resources.image_features, dim=-1)
        self._scale = float(resources.scorer.model.logit_scale.detach().exp())

    def __call__(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> Tensor:
        texts = self._scorer.encode_texts([text for of_image in captions for text in of_image], prefix=False)
        logs = (self._scale * texts @ self._images.T).log_softmax(-1)  # (B*K, N)
        own = torch.tensor(list(images)).repeat_interleave(len(captions[0]))
        return logs.gather(1, own[:, None]).view(len(captions), -1)
