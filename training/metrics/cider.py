"""CIDEr-D of the COCO caption evaluation."""

from __future__ import annotations

from typing import Any

from training.dependencies import require
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric


class Cider(ImageMetric):
    """CIDEr-D (Vedantam et al. 2015), by pycocoevalcap, which calls it CIDEr as the literature does."""

    needs = frozenset({"references"})

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._scorer_class = require("pycocoevalcap.cider.cider_scorer", "train").CiderScorer

    def definitions(self) -> dict[str, Definition]:
        text = "CIDEr-D (sigma 6, idf from the references of this very split), pycocoevalcap; 0..10"
        return {"cider": Definition(text, 100.0, "mean")}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        assert inputs.tokenized is not None
        if not any(token for references in inputs.tokenized.references for token in references):
            # No reference has a single token; pycocoevalcap would fail on its empty idf table.
            return {"cider": [0.0] * len(inputs.captions)}
        scorer = self._scorer_class(n=4, sigma=6.0)
        for caption, references in zip(inputs.tokenized.captions, inputs.tokenized.references, strict=True):
            scorer += (caption, list(references))
        return {"cider": scorer.compute_score()[1].tolist()}

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        if len(inputs.captions) > 1:
            return ()
        return ("CIDEr of a single image is 0 by definition: the idf of a corpus of one document is 0",)
