"""The registry: what reports become."""

from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving import metrics
from serving.drift import DriftOptions, ScoreBaseline
from serving.metrics import Metrics
from serving.quality import DIVERSITY_CAPTIONS, Quality, QualitySample
from serving.reports import Report


def samples(store: Metrics) -> dict[str, float]:
    """Value by ``name{labels}``."""
    return {
        sample.name + str(dict(sorted(sample.labels.items())) or ""): sample.value
        for family in text_string_to_metric_families(store.render().decode())
        for sample in family.samples
    }


def test_counters_and_histograms_add_up() -> None:
    store = Metrics()
    for _ in range(2):
        counts = Counter({(metrics.REQUESTS, ("/v1/captions", "200")): 2, (metrics.REPORTS_LOST, ()): 1})
        store.apply(Report("a", counts, [(metrics.STAGE_DURATION, ("decode",), 0.02), (metrics.BATCH_IMAGES, (), 8)]))
    found = samples(store)
    assert found["limner_requests_total{'route': '/v1/captions', 'status': '200'}"] == 4
    assert found["limner_reports_lost_total"] == 2
    assert found["limner_stage_duration_seconds_count{'stage': 'decode'}"] == 2
    assert found["limner_stage_duration_seconds_sum{'stage': 'decode'}"] == pytest.approx(0.04)
    assert found["limner_batch_images_bucket{'le': '8.0'}"] == 2


def test_gauges_are_sums_over_the_sources_that_still_speak() -> None:
    now = 0.0
    store = Metrics(clock=lambda: now)
    store.apply(Report("a", gauges={metrics.QUEUE_IMAGES: 3}))
    now = 10.0
    store.apply(Report("b", gauges={metrics.QUEUE_IMAGES: 4}))
    assert samples(store)["limner_queue_images"] == 7
    now = 15.5
    assert samples(store)["limner_queue_images"] == 4


def test_samples_become_histograms_and_gauges_of_their_model() -> None:
    store = Metrics(quality=Quality(DriftOptions(reference_sd=0), {"m": ScoreBaseline(mean=1, sd=0.1)}))
    samples_ = [QualitySample("m", "a dog sees a dog sees a dog"), QualitySample("m", None, 0.9)]
    store.apply(Report("a", samples=samples_))
    found = samples(store)
    assert found["limner_caption_words_sum{'model': 'm'}"] == 8
    assert found["limner_clip_score_count{'model': 'm'}"] == 1
    assert found["limner_clip_score_sum{'model': 'm'}"] == pytest.approx(0.9)
    assert found["limner_clip_score_drift{'model': 'm'}"] == pytest.approx(1)
    assert found["limner_clip_score_drift_alarm{'model': 'm'}"] == 0
    assert found["limner_caption_repetition_ratio{'model': 'm'}"] == 1
    assert not any(name.startswith("limner_lexical_diversity") for name in found)  # one caption is too few


def test_lexical_diversity_is_of_a_fixed_number_of_captions() -> None:
    store = Metrics()
    store.apply(Report("a", samples=[QualitySample("m", f"dog {n % 7}") for n in range(DIVERSITY_CAPTIONS)]))
    assert samples(store)["limner_lexical_diversity{'model': 'm'}"] == 8


def test_a_scorer_is_down_only_where_there_should_be_one() -> None:
    assert samples(Metrics())["limner_scorer_up"] == 0
    assert "limner_scorer_up" not in samples(Metrics(scorer=False))


def test_names_follow_the_conventions() -> None:
    assert all(name.startswith("limner_") and name.endswith("_total") for name in metrics.COUNTERS)
    assert all(name.startswith("limner_") and not name.endswith("_total") for name in metrics.HISTOGRAMS)
    assert all(list(buckets) == sorted(buckets) for _, _, buckets in metrics.HISTOGRAMS.values())


def test_nothing_is_left_out_before_anything_happened() -> None:
    text = Metrics().render().decode()
    for name in (*metrics.COUNTERS, *metrics.HISTOGRAMS, *metrics.GAUGES, *metrics.MODEL_GAUGES):
        assert f"# TYPE {name} " in text
