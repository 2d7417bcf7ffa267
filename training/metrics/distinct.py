"""Share of distinct captions."""

from __future__ import annotations

from models.text_stats import words
from training.metrics.interface import Definition, Metric, MetricInputs


class Distinct(Metric):
    """How many different captions there are per caption; low when a model gives many pictures the same one."""

    def definitions(self) -> dict[str, Definition]:
        text = "distinct captions / captions, compared as lower-cased words; 0..1"
        return {"distinct_captions": Definition(text, 100.0)}

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        distinct = {tuple(word.lower() for word in words(caption)) for caption in inputs.captions}
        return {"distinct_captions": len(distinct) / len(inputs.captions)}
