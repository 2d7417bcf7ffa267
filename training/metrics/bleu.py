"""BLEU-1 to BLEU-4 of the COCO caption evaluation."""

from __future__ import annotations

from typing import Any

from training.dependencies import require
from training.metrics.interface import Definition, Metric, MetricInputs

_ORDERS = 4


class Bleu(Metric):
    """Corpus BLEU with the closest reference length (Papineni et al. 2002), by pycocoevalcap."""

    needs = frozenset({"references"})

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._scorer_class = require("pycocoevalcap.bleu.bleu_scorer", "train").BleuScorer

    def definitions(self) -> dict[str, Definition]:
        return {
            f"bleu{n}": Definition(f"corpus BLEU-{n}, closest reference length, pycocoevalcap; 0..1", 100.0)
            for n in range(1, _ORDERS + 1)
        }

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        assert inputs.tokenized is not None
        scorer = self._scorer_class(n=_ORDERS)
        for caption, references in zip(inputs.tokenized.captions, inputs.tokenized.references, strict=True):
            scorer += (caption, list(references))
        scores, _ = scorer.compute_score(option="closest", verbose=0)
        return {f"bleu{n}": float(score) for n, score in enumerate(scores, start=1)}
