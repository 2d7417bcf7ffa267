"""Vocabulary of the captions."""

from __future__ import annotations

from collections.abc import Sequence

from models.text_stats import words
from training.metrics.caption_text import TextOptions
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import CorpusMetric


class Vocabulary(CorpusMetric[frozenset[str]]):
    """Number of distinct lower-cased words in use."""

    class Options(TextOptions):
        """Those of every metric of caption texts."""

    def definitions(self) -> dict[str, Definition]:
        text = f"distinct lower-cased words over all captions{self.options.words}; grows with the image count"
        return {"vocabulary": Definition(text)}

    def counts(self, inputs: MetricInputs) -> list[frozenset[str]]:
        return [frozenset(words(caption.lower())) for caption in self.options.captions(inputs)]

    def combine(self, counts: Sequence[frozenset[str]]) -> dict[str, float]:
        return {"vocabulary": float(len(frozenset().union(*counts)))}
