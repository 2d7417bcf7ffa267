"""Share of distinct captions."""

from __future__ import annotations

from collections.abc import Sequence

from models.text_stats import words
from training.metrics.caption_text import TextOptions
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import CorpusMetric


class Distinct(CorpusMetric[tuple[str, ...]]):
    """How many different captions there are per caption; low when a model gives many pictures the same one."""

    class Options(TextOptions):
        """Those of every metric of caption texts."""

    def definitions(self) -> dict[str, Definition]:
        text = f"distinct captions / captions, compared as lower-cased words{self.options.words}; 0..1"
        return {"distinct_captions": Definition(text, 100.0)}

    def counts(self, inputs: MetricInputs) -> list[tuple[str, ...]]:
        return [tuple(word.lower() for word in words(caption)) for caption in self.options.captions(inputs)]

    def combine(self, counts: Sequence[tuple[str, ...]]) -> dict[str, float]:
        return {"distinct_captions": len(set(counts)) / len(counts)}
