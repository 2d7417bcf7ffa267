"""Caption length."""

from __future__ import annotations

from models.text_stats import word_count
from training.metrics.interface import Definition, Metric, MetricInputs


class Length(Metric):
    """Mean number of words, as in SMILE (Yue et al. 2023): white-space tokens, lone punctuation not counted."""

    def definitions(self) -> dict[str, Definition]:
        return {"mean_words": Definition("mean number of words of a caption; punctuation is no word")}

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        return {"mean_words": sum(word_count(caption) for caption in inputs.captions) / len(inputs.captions)}
