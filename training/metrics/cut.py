"""Share of captions cut at the token limit."""

from __future__ import annotations

from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric


class Cut(ImageMetric):
    """Captions that the model did not end itself."""

    needs = frozenset({"finish_reasons"})

    def definitions(self) -> dict[str, Definition]:
        text = "share of captions that were cut at max_tokens (finish_reason length); 0..1"
        return {"cut": Definition(text, 100.0, "mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        assert inputs.finish_reasons is not None
        return {"cut": [float(reason == "length") for reason in inputs.finish_reasons]}
