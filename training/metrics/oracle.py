"""Oracle best-of-n: the scores of an image's best caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from models.errors import RequestError
from training.metrics import build_metrics
from training.metrics.candidates import SetOptions
from training.metrics.interface import Definition, Metric, MetricInputs
from training.metrics.kinds import CorpusMetric, ImageMetric

_PREFIX = "oracle_"


class Oracle(ImageMetric):
    """For each number the greatest value that a caption of the image reaches, then the mean over images."""

    needs = frozenset({"candidates", "references"})

    class Options(SetOptions):
        metrics: list[str | dict[str, Any]] = Field(default=["bleu", "cider", "rouge_l"], min_length=1)
        """Metrics that compare a caption with references, each of which chooses its own best caption."""

    def __init__(self, options: Any = None) -> None:
        """Builds the metrics.

        Raises:
            RequestError: ``unsupported_option``, one needs more than references, or is not defined on one caption.
        """
        super().__init__(options)
        self._metrics = build_metrics(self.options.metrics)
        for name, metric in self._metrics.items():
            if metric.needs != {"references"} or not isinstance(metric, ImageMetric | CorpusMetric):
                raise RequestError("unsupported_option", f"metric 'oracle' cannot choose captions by {name!r}")

    def definitions(self) -> dict[str, Definition]:
        text = (
            f"greatest value that one caption of the image has ({self.options.words}), mean over images; of captions: "
        )
        return {
            _PREFIX + name: Definition(text + definition.text, definition.table_scale, "mean")
            for metric in self._metrics.values()
            for name, definition in metric.definitions().items()
        }

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        slots = list(zip(*self.options.sets(inputs), strict=True))
        return {
            _PREFIX + name: values
            for metric in self._metrics.values()
            for name, values in self._greatest(metric, inputs, slots).items()
        }

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        return (f"best of {len(self.options.sets(inputs)[0])} captions",)

    @staticmethod
    def _greatest(metric: Metric, inputs: MetricInputs, slots: Sequence[tuple[str, ...]]) -> dict[str, list[float]]:
        """The greatest value of each image; ``slots`` holds the i-th captions of all images, for every i."""
        assert inputs.tokenized is not None
        tokenized = [replace(inputs.tokenized, captions=slot) for slot in slots]
        scores = [metric.caption_scores(replace(inputs, tokenized=tokens)) for tokens in tokenized]
        return {name: [max(values) for values in zip(*(of[name] for of in scores), strict=True)] for name in scores[0]}
