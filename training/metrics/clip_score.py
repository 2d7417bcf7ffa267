"""CLIPScore of the captions."""

from __future__ import annotations

from training.metrics.interface import Definition, Metric, MetricInputs


class ClipScore(Metric):
    """Mean of weight * max(cos(image, prefix + caption), 0) (Hessel et al. 2021), under the scorer named beside it."""

    needs = frozenset({"scorer"})

    def definitions(self) -> dict[str, Definition]:
        text = "mean CLIPScore, weight * max(cos, 0) with the scorer's weight (2.5 unless its card differs) and prefix"
        return {"clip_score": Definition(text, 100.0)}

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        features = inputs.features
        assert features is not None
        cosines = (features.images * features.prefixed_texts).sum(dim=1)  # (N,)
        return {"clip_score": float(features.weight * cosines.clamp(min=0).mean())}

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        assert inputs.features is not None
        return (f"weight {inputs.features.weight}, prefix {inputs.features.prefix!r}",)
