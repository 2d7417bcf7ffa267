"""Intervals over images, against their formulas and against what really happens to numbers on other images."""

import math

import numpy as np
import pytest

from tests.training.metrics.helpers import everything, texts
from training.evaluation.bootstrap import (
    MetricSamples,
    is_biased,
    jackknife_interval,
    percentile_interval,
    resamples,
)
from training.metrics import METRICS, build_metrics
from training.metrics.interface import Metric


def metric(name: str) -> Metric:
    return build_metrics([name])[name]


def test_samples_are_seeded_and_as_large_as_the_images() -> None:
    samples = resamples(4, 50, seed=1)
    assert samples.shape == (50, 4)
    assert set(samples.ravel().tolist()) == {0, 1, 2, 3}
    assert np.array_equal(samples, resamples(4, 50, seed=1))
    assert not np.array_equal(samples, resamples(4, 50, seed=2))


@pytest.mark.parametrize("name", ["bleu", "content_words", "length", "self_retrieval", "vocabulary", "consensus"])
def test_distributions_are_what_the_metric_gives_on_each_sample(name: str) -> None:
    inputs, samples = everything(), resamples(5, 7)
    sampled = MetricSamples(metric(name), inputs, samples)
    resample = metric(name).resampler(inputs)
    for row, sample in enumerate(samples.tolist()):
        slow = resample(sample)
        assert {key: values[row] for key, values in sampled.distributions.items()} == pytest.approx(slow)
    assert list(sampled.distributions) == list(sampled.definitions)
    assert sampled.scorer == "toy"


def test_every_metric_that_needs_no_program_can_be_sampled() -> None:
    for name in METRICS.keys() - {"meteor", "spice", "perplexity"}:
        sampled = MetricSamples(metric(name), everything(), resamples(5, 2))
        assert all(np.isfinite(values).all() for values in sampled.distributions.values()), name


def test_each_image_is_left_out_once() -> None:
    sampled = MetricSamples(metric("vocabulary"), texts("a dog", "a cat", "a dog runs far"), resamples(3, 2))
    assert sampled.left_out["vocabulary"].tolist() == [5, 4, 3]
    assert sampled.counts is None or len(sampled.counts) == 3


def test_percentiles_cut_off_two_and_a_half_percent_on_each_side() -> None:
    assert percentile_interval(np.arange(1001) / 1000) == pytest.approx((0.025, 0.975))


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.array([1.0, 2.0, 4.0, 9.0])
    left_out = np.array([np.delete(values, at).mean() for at in range(4)])
    low, high = jackknife_interval(4.0, left_out)
    error = values.std(ddof=1) / math.sqrt(4)
    assert (low, high) == pytest.approx((4 - 1.959964 * error, 4 + 1.959964 * error))


def test_counts_of_different_things_are_biased_and_means_are_not() -> None:
    rng = np.random.default_rng(0)
    captions = [" ".join(f"w{n}" for n in rng.zipf(1.5, size=6)) for _ in range(100)]
    inputs, samples = texts(*captions), resamples(100, 200)
    for name, number, biased in (("vocabulary", "vocabulary", True), ("length", "mean_words", False)):
        value = metric(name).compute(inputs)[number]
        assert is_biased(value, MetricSamples(metric(name), inputs, samples).distributions[number]) is biased


def test_the_jackknife_covers_a_vocabulary_that_is_drawn_again() -> None:
    """Its standard error is that of fresh draws, which the bootstrap's percentiles do not even contain."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 501)

    def draw() -> list[str]:
        words = rng.choice(500, size=(60, 5), p=share / share.sum())
        return [" ".join(f"w{n}" for n in row) for row in words]

    vocabulary = metric("vocabulary")
    fresh = np.array([vocabulary.compute(texts(*draw()))["vocabulary"] for _ in range(100)])
    sampled = MetricSamples(vocabulary, texts(*draw()), resamples(60, 100))
    low, high = jackknife_interval(0.0, sampled.left_out["vocabulary"])
    assert (high - low) / (2 * 1.96) == pytest.approx(fresh.std(), rel=0.35)
    assert percentile_interval(sampled.distributions["vocabulary"])[1] < fresh.mean()
