"""The two kinds of metrics: those that are means over images, and those of all the images at once."""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from training.metrics.interface import Metric, MetricInputs, Resampler

S = TypeVar("S")

_SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": lambda values: float(statistics.median(values)),
}


class ImageMetric(Metric):
    """A metric whose numbers are means (or medians, as their definitions say) of values per image."""

    @abstractmethod
    def per_image(self, inputs: MetricInputs) -> Mapping[str, Sequence[float]]:
        """N values for every number."""

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        return self._summary(self.per_image(inputs))

    def resampler(self, inputs: MetricInputs) -> Resampler:
        values = self.per_image(inputs)
        return lambda indices: self._summary({name: [of[index] for index in indices] for name, of in values.items()})

    def _summary(self, values: Mapping[str, Sequence[float]]) -> dict[str, float]:
        definitions = self.definitions()
        return {name: _SUMMARIES[definitions[name].over_images](of) for name, of in values.items()}


class CorpusMetric(Metric, Generic[S]):
    """A metric whose numbers are computed from what is counted on each image, and are no means of values per image."""

    @abstractmethod
    def counts(self, inputs: MetricInputs) -> Sequence[S]:
        """What ``combine`` needs to know of each of the N images."""

    @abstractmethod
    def combine(self, counts: Sequence[S]) -> dict[str, float]:
        """The numbers of at least one image."""

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        return self.combine(self.counts(inputs))

    def caption_scores(self, inputs: MetricInputs) -> Mapping[str, Sequence[float]]:
        scores = [self.combine([count]) for count in self.counts(inputs)]
        return {name: [score[name] for score in scores] for name in self.definitions()}

    def resampler(self, inputs: MetricInputs) -> Resampler:
        counts = self.counts(inputs)
        return lambda indices: self.combine([counts[index] for index in indices])
