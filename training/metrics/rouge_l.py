"""ROUGE-L of the COCO caption evaluation."""

from __future__ import annotations

from typing import Any

from training.dependencies import require
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric


class RougeL(ImageMetric):
    """F-measure of the longest common subsequence (Lin 2004) with beta 1.2, by pycocoevalcap."""

    needs = frozenset({"references"})

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._scorer = require("pycocoevalcap.rouge.rouge", "train").Rouge()

    def definitions(self) -> dict[str, Definition]:
        text = "mean ROUGE-L, beta 1.2, best precision and best recall over the references, pycocoevalcap; 0..1"
        return {"rouge_l": Definition(text, 100.0, "mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        assert inputs.tokenized is not None
        pairs = zip(inputs.tokenized.captions, inputs.tokenized.references, strict=True)
        return {"rouge_l": [self._score(caption, list(references)) for caption, references in pairs]}

    def _score(self, caption: str, references: list[str]) -> float:
        # An empty text is one empty token to pycocoevalcap, so that two of them would agree perfectly.
        return float(self._scorer.calc_score([caption], references)) if caption else 0.0
