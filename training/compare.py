"""Comparison of captioners on the same images: intervals, and paired differences to the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from models.paired_tests import FLIPS, flip_means
from training.comparison import Comparison
from training.evaluate import Measured
from training.evaluation.bootstrap import (
    LEVEL,
    RESAMPLES,
    MetricSamples,
    is_biased,
    jackknife_interval,
    percentile_interval,
    resamples,
)
from training.evaluation.paired_tests import SWAPS, bootstrap_p, mcnemar_exact, swap_counts, swap_medians
from training.metrics.kinds import CorpusMetric
from training.report import (
    Difference,
    Estimate,
    Evaluation,
    IntervalMethod,
)

_METHOD = (
    f"In brackets: {LEVEL:.0%} intervals over images, percentiles of {RESAMPLES:,} bootstrap samples, the same for "
    "all; for numbers of the whole corpus that samples with repeats bias, such as the count of different words, "
    "value and standard error by the jackknife. Then the paired difference to the first, its interval and p: exact "
    f"McNemar for shares; for others a permutation test ({FLIPS:,} flips of values per image, {SWAPS:,} swaps of what "
    "corpus numbers count). p values are two-sided and not corrected for the number of tests."
)

Key = tuple[str, str | None]
"""Name and scorer of a number."""


def compare(measured: Sequence[Measured], seed: int = 0) -> Comparison:
    """The evaluations with intervals, and but for the first with differences to it."""
    first, *others = measured
    samples = resamples(len(first.inputs.captions), seed=seed)
    base = list(_sampled(first, samples))
    estimates = {key: Estimate(*_interval(first.evaluation, of, key[0])) for of in base for key in _keys(of)}
    evaluations = [replace(first.evaluation, estimates=estimates)]
    for other in others:
        pairs = zip(base, _sampled(other, samples), strict=True)
        found = [item for old, new in pairs for item in _estimates(first.evaluation, other.evaluation, old, new, seed)]
        evaluations.append(replace(other.evaluation, estimates=dict(found)))
    return Comparison(tuple(evaluations), _METHOD)


def _sampled(measured: Measured, samples: np.ndarray) -> Iterator[MetricSamples]:
    return (MetricSamples(metric, inputs, samples) for metric, inputs in measured.computations())


def _keys(of: MetricSamples) -> list[Key]:
    return [(name, of.scorer) for name in of.definitions]


def _interval(evaluation: Evaluation, of: MetricSamples, name: str) -> tuple[tuple[float, float], IntervalMethod]:
    value, distribution = evaluation.value(name, of.scorer), of.distributions[name]
    if name in of.per_image or not is_biased(value, distribution):
        return percentile_interval(distribution), "percentile"
    return jackknife_interval(value, of.left_out[name]), "jackknife"


def _estimates(
    base: Evaluation, evaluation: Evaluation, old: MetricSamples, new: MetricSamples, seed: int
) -> Iterator[tuple[Key, Estimate]]:
    """Of every number of one metric."""
    tests = _tests(old, new, seed)
    for name, scorer in _keys(new):
        value = evaluation.value(name, scorer) - base.value(name, scorer)
        spread = new.distributions[name] - old.distributions[name]
        if name in new.per_image or not is_biased(value, spread):
            reach = percentile_interval(spread)
        else:
            reach = jackknife_interval(value, new.left_out[name] - old.left_out[name])
        p, test = tests[name]
        difference = Difference(base.label, value, reach, p, test)
        yield (name, scorer), Estimate(*_interval(evaluation, new, name), difference)


def _tests(old: MetricSamples, new: MetricSamples, seed: int) -> dict[str, tuple[float, str]]:
    """p and the name of the test for every number of one metric."""
    found = {
        name: _value_test(old.per_image[name], new.per_image[name], of.over_images, seed)
        for name, of in new.definitions.items()
        if name in new.per_image
    }
    rest = [name for name in new.definitions if name not in found]
    if not rest:
        return found
    if old.counts is not None and new.counts is not None and isinstance(new.metric, CorpusMetric):
        swapped = swap_counts(old.counts, new.counts, new.metric.combine, seed)
        return found | {name: (swapped[name], f"permutation ({SWAPS:,})") for name in rest}
    spreads = {name: new.distributions[name] - old.distributions[name] for name in rest}
    return found | {name: (bootstrap_p(spread), f"bootstrap ({RESAMPLES:,})") for name, spread in spreads.items()}


def _value_test(old: np.ndarray, new: np.ndarray, over_images: str, seed: int) -> tuple[float, str]:
    if over_images == "median":
        return swap_medians(old, new, seed), f"permutation ({FLIPS:,})"
    if np.isin(np.concatenate([old, new]), (0.0, 1.0)).all():
        return mcnemar_exact(old, new), "exact McNemar"
    return flip_means(old, new, seed), f"permutation ({FLIPS:,})"
