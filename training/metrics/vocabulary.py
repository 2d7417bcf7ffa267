"""Vocabulary of the captions."""

from __future__ import annotations

from models.text_stats import distinct_words
from training.metrics.interface import Definition, Metric, MetricInputs


class Vocabulary(Metric):
    """Number of distinct lower-cased words in use."""

    def definitions(self) -> dict[str, Definition]:
        return {"vocabulary": Definition("distinct lower-cased words over all captions; grows with the image count")}

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        return {"vocabulary": float(distinct_words(caption.lower() for caption in inputs.captions))}
