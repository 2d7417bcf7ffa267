"""How far numbers would move if the images were others of their kind: bootstrap and jackknife over images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from training.metrics.interface import Metric, MetricInputs, Resampler
from training.metrics.kinds import CorpusMetric

RESAMPLES = 1000
LEVEL = 0.95
MOST_BIAS = 0.25
"""In standard errors; beyond that a percentile interval misleads (Efron and Tibshirani 1993, section 10.3)."""

Interval = tuple[float, float]

_SUMMARIES: dict[str, Callable[..., np.ndarray]] = {"mean": np.mean, "median": np.median}


def resamples(images: int, count: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Indices (count, images) of images drawn with replacement; the same for every captioner, so that they pair up."""
    return np.random.default_rng(seed).integers(images, size=(count, images))


class MetricSamples:
    """The numbers of a metric on samples of the images."""

    def __init__(self, metric: Metric, inputs: MetricInputs, samples: np.ndarray) -> None:
        """``samples`` (B, N) from ``resamples``."""
        self.metric = metric
        self.scorer = inputs.features.scorer if inputs.features else None
        self.definitions = metric.definitions()
        self._images = len(inputs.captions)
        averaged = any(definition.over_images != "corpus" for definition in self.definitions.values())
        values = metric.per_image(inputs) if averaged else {}
        self.per_image = {name: np.asarray(of, dtype=float) for name, of in values.items()}
        """(N,) values of the numbers that are their mean or median."""
        self.counts: Sequence[Any] | None = None
        """What the numbers of a corpus metric are combined from."""
        self._resample = self._resampler(metric, inputs)
        self.distributions = self._distributions(samples)
        """Of every number (B,)."""

    @cached_property
    def left_out(self) -> dict[str, np.ndarray]:
        """Every number without each of the images in turn (N,)."""
        indices = range(self._images)
        rows = [self._resample([*indices[:image], *indices[image + 1 :]]) for image in indices]
        return {name: np.array([row[name] for row in rows]) for name in self.definitions}

    def _resampler(self, metric: Metric, inputs: MetricInputs) -> Resampler:
        if not isinstance(metric, CorpusMetric):
            return metric.resampler(inputs)
        counts = self.counts = metric.counts(inputs)  # once for all: some take a Java program or a language model
        return lambda indices: metric.combine([counts[index] for index in indices])

    def _distributions(self, samples: np.ndarray) -> dict[str, np.ndarray]:
        found = {
            name: _SUMMARIES[self.definitions[name].over_images](values[samples], axis=1)
            for name, values in self.per_image.items()
        }
        if rest := [name for name in self.definitions if name not in found]:
            rows = [self._resample(sample) for sample in samples.tolist()]
            found |= {name: np.array([row[name] for row in rows]) for name in rest}
        return {name: found[name] for name in self.definitions}


def percentile_interval(values: np.ndarray) -> Interval:
    """The percentile interval of a bootstrap distribution (B,)."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def jackknife_interval(value: float, left_out: np.ndarray) -> Interval:
    """The normal interval around a number, of its standard error by the jackknife: its values (N,) without each image.

    Unlike the bootstrap it is right for numbers that count different things: a sample with repeats holds only 63 % of
    the images, and so fewer of them.
    """
    images = len(left_out)
    error = math.sqrt((images - 1) / images * float(((left_out - left_out.mean()) ** 2).sum()))
    reach = NormalDist().inv_cdf((1 + LEVEL) / 2) * error
    return value - reach, value + reach


def is_biased(value: float, distribution: np.ndarray) -> bool:
    """Whether a number on samples (B,) is, on average, too far from itself on all images."""
    return bool(abs(distribution.mean() - value) > MOST_BIAS * distribution.std())
