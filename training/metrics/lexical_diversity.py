"""Lexical diversity."""

from __future__ import annotations

from collections.abc import Sequence

from models.text_stats import words
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import CorpusMetric


class LexicalDiversity(CorpusMetric[frozenset[str]]):
    """Distinct words over all captions, in thousands, as in SMILE (Yue et al. 2023)."""

    def definitions(self) -> dict[str, Definition]:
        text = "distinct words over all captions / 1000, case kept, punctuation stripped; grows with the image count"
        return {"lexical_diversity": Definition(text)}

    def counts(self, inputs: MetricInputs) -> list[frozenset[str]]:
        return [frozenset(words(caption)) for caption in inputs.captions]

    def combine(self, counts: Sequence[frozenset[str]]) -> dict[str, float]:
        return {"lexical_diversity": len(frozenset().union(*counts)) / 1000}
