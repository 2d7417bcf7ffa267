"""Self-retrieval: how well a caption finds its own picture."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric
from training.metrics.retrieval import define, own_ranks, per_query


class SelfRetrieval(ImageMetric):
    """Text-to-image retrieval of every caption (no prefix) over the images of the split, as in SMILE."""

    needs = frozenset({"scorer"})

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        distractors: bool = False
        """Images without a caption join the pool."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        if self.options.distractors:
            self.needs = frozenset({"scorer", "distractors"})

    def definitions(self) -> dict[str, Definition]:
        pool = "the images measured and distractors" if self.options.distractors else "the images measured"
        return define(f"captions (no prefix, pool = {pool})")

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        features = inputs.features
        assert features is not None
        pool = features.images
        if self.options.distractors:
            assert features.distractors is not None
            pool = torch.cat([pool, features.distractors])
        return per_query(own_ranks(features.texts, pool, torch.arange(len(features.images))))

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        pool = f"pool of {len(inputs.captions)} images"
        if not self.options.distractors:
            return (pool,)
        assert inputs.features is not None and inputs.features.distractors is not None
        return (f"{pool} and {len(inputs.features.distractors)} distractors",)
