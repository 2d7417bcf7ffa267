"""The quality state: rolling statistics against a recount, scores and texts that come apart, bounds."""

import random

import pytest

from models.text_stats import distinct_words, repetition_ratio
from serving import quality
from serving.drift import DriftOptions, ScoreBaseline
from serving.quality import MOST_MODELS, OTHER_MODELS, ModelGauges, Quality, QualitySample, RollingTexts


def gauges(store: Quality, model: str = "m") -> ModelGauges:
    return dict(store.gauges())[model]


def test_rolling_statistics_equal_a_recount() -> None:
    draw = random.Random(0)
    texts = [" ".join(draw.choices(["A", "a", "dog", "cat", "runs", "don't", ",", "."], k=9)) for _ in range(300)]
    rolling = RollingTexts(size=50)
    for number, text in enumerate(texts, start=1):
        rolling.add(text)
        window = texts[max(0, number - 50) : number]
        assert rolling.repetition_ratio == pytest.approx(repetition_ratio(window))
        assert rolling.distinct_words == (distinct_words(window) if number >= 50 else None)
    assert set(rolling._uses) == {word for text in texts[-50:] for word in quality.words(text)}  # nothing is kept


def test_nothing_is_told_before_there_is_enough() -> None:
    store = Quality()
    assert list(store.gauges()) == []
    assert store.add(QualitySample("m", clip_score=1.0)) == ("m", None)
    assert gauges(store) == ModelGauges(None, None, None, False)
    assert store.add(QualitySample("m", "a dog runs")) == ("m", 3)
    assert gauges(store) == ModelGauges(None, 0.0, None, False)


def test_a_score_counts_as_what_it_is_off_the_expected_one() -> None:
    store = Quality(DriftOptions(reference_sd=0, threshold_sd=2), {"m": ScoreBaseline(mean=0, sd=0.1)})
    for expected in (1.4, 1.2, 0.9):
        store.add(QualitySample("m", clip_score=expected, expected_clip_score=expected))
    assert gauges(store).drift_sd == 0
    store.add(QualitySample("m", clip_score=1.0, expected_clip_score=1.25))
    assert gauges(store).drift_sd == pytest.approx(2.5)
    assert gauges(store).drift_alarm


def test_unusual_decoding_says_nothing_about_drift() -> None:
    store = Quality(baselines={"m": ScoreBaseline(mean=1, sd=0.1)})
    for _ in range(100):
        store.add(QualitySample("m", "dog", clip_score=0.0, usual=False))
    assert gauges(store).drift_sd == 0
    assert not gauges(store).drift_alarm


def test_models_are_told_apart_and_bounded() -> None:
    store = Quality()
    labels = [store.add(QualitySample(f"m{number}", "a dog"))[0] for number in range(MOST_MODELS + 10)]
    assert labels[:MOST_MODELS] == [f"m{number}" for number in range(MOST_MODELS)]
    assert set(labels[MOST_MODELS:]) == {OTHER_MODELS}
    assert len(list(store.gauges())) == MOST_MODELS + 1
    assert store.add(QualitySample("m0", "a dog"))[0] == "m0"
