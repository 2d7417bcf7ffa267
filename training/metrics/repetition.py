"""Share of captions that repeat themselves."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from models.text_stats import repetition_ratio
from training.metrics.interface import Definition, Metric, MetricInputs


class Repetition(Metric):
    """Captions in which some n-gram of words comes twice."""

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        n: int = Field(default=3, ge=1, le=8)

    def definitions(self) -> dict[str, Definition]:
        text = f"share of captions in which a {self.options.n}-gram of words comes more than once; 0..1"
        return {"repetition": Definition(text, 100.0)}

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        return {"repetition": repetition_ratio(inputs.captions, self.options.n)}
