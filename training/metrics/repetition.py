"""Share of captions that repeat themselves."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from models.text_stats import repeats_ngram
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric


class Repetition(ImageMetric):
    """Captions in which some n-gram of words comes twice."""

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        n: int = Field(default=3, ge=1, le=8)

    def definitions(self) -> dict[str, Definition]:
        text = f"share of captions in which a {self.options.n}-gram of words comes more than once; 0..1"
        return {"repetition": Definition(text, 100.0, "mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        return {"repetition": [float(repeats_ngram(caption, self.options.n)) for caption in inputs.captions]}
