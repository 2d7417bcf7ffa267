"""Self-retrieval: how well a caption finds its own picture."""

from __future__ import annotations

import torch

from training.metrics.interface import Definition, Metric, MetricInputs
from training.metrics.retrieval import define, own_ranks, summarize


class SelfRetrieval(Metric):
    """Text-to-image retrieval of every caption (no prefix) over the images of the split, as in SMILE."""

    needs = frozenset({"scorer"})

    def definitions(self) -> dict[str, Definition]:
        return define("captions (no prefix, pool = the images measured)")

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        features = inputs.features
        assert features is not None
        own = torch.arange(len(features.images))
        return summarize(own_ranks(features.texts, features.images, own))

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        return (f"pool of {len(inputs.captions)} images",)
