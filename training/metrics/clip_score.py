"""CLIPScore of the captions."""

from __future__ import annotations

import torch

from training.metrics.interface import Definition, MetricInputs, ScorerFeatures
from training.metrics.kinds import ImageMetric


class ClipScore(ImageMetric):
    """Mean of weight * max(cos(image, prefix + caption), 0) (Hessel et al. 2021), under the scorer named beside it."""

    needs = frozenset({"scorer"})

    def definitions(self) -> dict[str, Definition]:
        text = "mean CLIPScore, weight * max(cos, 0) with the scorer's weight (2.5 unless its card differs) and prefix"
        return {"clip_score": Definition(text, 100.0, "mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        assert inputs.features is not None
        return {"clip_score": clip_scores(inputs.features).tolist()}

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        assert inputs.features is not None
        return (f"weight {inputs.features.weight}, prefix {inputs.features.prefix!r}",)


def clip_scores(features: ScorerFeatures) -> torch.Tensor:
    """CLIPScore (N,) of each image's caption."""
    cosines = (features.images * features.prefixed_texts).sum(dim=1)
    return features.weight * cosines.clamp(min=0)
