"""Lexical diversity."""

from __future__ import annotations

from models.text_stats import distinct_words
from training.metrics.interface import Definition, Metric, MetricInputs


class LexicalDiversity(Metric):
    """Distinct words over all captions, in thousands, as in SMILE (Yue et al. 2023)."""

    def definitions(self) -> dict[str, Definition]:
        text = "distinct words over all captions / 1000, case kept, punctuation stripped; grows with the image count"
        return {"lexical_diversity": Definition(text)}

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        return {"lexical_diversity": distinct_words(inputs.captions) / 1000}
