"""mBLEU-4: how alike the captions of an image are."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from training.metrics.bleu import BleuCounter, Counts, bleu_scores
from training.metrics.candidates import SetOptions
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import CorpusMetric


class Mbleu(CorpusMetric[list[Counts]]):
    """BLEU-4 of each caption against the others of its image, as in COS-CVAE and UNKT; less is more diverse."""

    needs = frozenset({"candidates"})

    class Options(SetOptions):
        """Those of every metric of caption sets."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._counter = BleuCounter()

    def definitions(self) -> dict[str, Definition]:
        text = "corpus BLEU-4 of the i-th caption of every image against its others, mean over i"
        return {"mbleu4": Definition(f"{text}, {self.options.words}; 0..1")}

    def counts(self, inputs: MetricInputs) -> list[list[Counts]]:
        return [
            [self._counter.count(caption, captions[:i] + captions[i + 1 :]) for i, caption in enumerate(captions)]
            for captions in self.options.sets(inputs)
        ]

    def combine(self, counts: Sequence[list[Counts]]) -> dict[str, float]:
        slots = zip(*counts, strict=True)
        return {"mbleu4": statistics.fmean(bleu_scores(slot)[-1] for slot in slots)}
