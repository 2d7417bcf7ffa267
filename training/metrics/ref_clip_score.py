"""RefCLIPScore of the captions."""

from __future__ import annotations

import torch

from training.metrics.clip_score import clip_scores
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric


class RefClipScore(ImageMetric):
    """Harmonic mean of CLIPScore and the closest reference (Hessel et al. 2021), per image, then the mean."""

    needs = frozenset({"scorer", "reference_features"})

    def definitions(self) -> dict[str, Definition]:
        text = "mean over images of the harmonic mean of CLIPScore and max(0, greatest cos(caption, reference))"
        return {"ref_clip_score": Definition(text, 100.0, "mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        features = inputs.features
        assert features is not None and features.prefixed_references is not None
        texts, references = features.prefixed_texts, features.prefixed_references
        pairs = zip(texts, references, strict=True)
        closest = torch.stack([(of @ text).max() for text, of in pairs]).clamp(min=0)  # (N,)
        scores = clip_scores(features)
        # Where both are 0 the harmonic mean is 0 too; the bound only keeps 0 / 0 away.
        return {"ref_clip_score": (2 * scores * closest / (scores + closest).clamp(min=1e-12)).tolist()}

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        assert inputs.features is not None
        return (f"weight {inputs.features.weight}, prefix {inputs.features.prefix!r}, on references too",)
