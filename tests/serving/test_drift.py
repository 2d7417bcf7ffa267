"""Drift: worked by hand, silent on healthy streams, quick on damaged ones; scores are drawn from real quantiles."""

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from models.catalog import DEFAULT_MODEL, DEFAULT_SCORER, list_models
from models.decoding import parse_decode
from models.images import read_image
from models.pipeline import CaptionPipeline, load_pipeline
from serving.drift import DriftDetector, DriftOptions, ScoreBaseline
from tests.support import SHARED, needs_shared

Draw = Callable[[np.random.Generator, int], np.ndarray]

# CLIPScores by the bundled scorer, quantiles 0, 0.05 ... 1. `concise` on Flickr8k val, 500 pictures:
HEALTHY = [
    *(0.292, 0.844, 1.031, 1.106, 1.197, 1.285, 1.334, 1.379, 1.419, 1.462, 1.5),
    *(1.531, 1.574, 1.614, 1.661, 1.708, 1.732, 1.78, 1.828, 1.881, 2.097),
]
# 200 of them, after normal noise was added to every parameter, by 0.03 and by 0.05 of its tensor's spread:
NOISE_003 = [
    *(0.0, 0.336, 0.515, 0.653, 0.757, 0.885, 0.995, 1.09, 1.123, 1.18, 1.281),
    *(1.341, 1.39, 1.443, 1.51, 1.591, 1.635, 1.698, 1.764, 1.843, 2.04),
]
NOISE_005 = [
    *(0.0, 0.0, 0.0, 0.112, 0.224, 0.379, 0.483, 0.616, 0.666, 0.734, 0.812),
    *(0.869, 0.955, 1.053, 1.112, 1.176, 1.253, 1.374, 1.502, 1.599, 1.86),
]
# 100 pictures of one colour:
BLANK = [
    *(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.192, 0.315),
    *(0.405, 0.488, 0.631, 0.678, 0.855, 0.884, 0.93, 0.973, 1.05, 1.402),
]


def like(quantiles: list[float]) -> Draw:
    grid = np.linspace(0, 1, len(quantiles))
    return lambda random, size: np.interp(random.random(size), grid, quantiles)


def skewed(random: np.random.Generator, size: int) -> np.ndarray:
    """Skewness -2: mostly high, with a long tail of low scores."""
    return 1.9 - random.exponential(0.4, size)


def feed(detector: DriftDetector, scores: np.ndarray) -> int | None:
    """How many scores it took to the alarm; None where there was none."""
    for number, score in enumerate(scores.tolist(), start=1):
        detector.add(score)
        if detector.alarm:
            return number
    return None


def test_by_hand() -> None:
    options = DriftOptions(reference_sd=0.5, threshold_sd=4)
    detector = DriftDetector(options, ScoreBaseline(mean=1.0, sd=0.2))
    found = []
    for score in (1.2, 0.8, 0.6, 0.0, 0.0, 0.0, 1.0, 1.6, 1.6):
        detector.add(score)
        found.append((round(detector.statistic or 0.0, 6), detector.alarm))
    assert found == [
        (0.0, False),  # z = 1
        (0.5, False),  # z = -1
        (2.0, False),  # z = -2
        (4.5, True),  # z = -5 counts as -3
        (7.0, True),
        (8.0, True),  # not 9.5: twice the threshold at most
        (7.5, True),
        (4.0, True),
        (0.5, True),  # below the threshold, and still an alarm
    ]
    detector.add(1.6)
    assert (detector.statistic, detector.alarm) == (0.0, False)


def test_the_first_scores_are_the_baseline() -> None:
    detector = DriftDetector(DriftOptions(baseline_scores=4, reference_sd=0, threshold_sd=5))
    for score in (1.0, 2.0, 1.0, 2.0):
        assert detector.statistic is None
        detector.add(score)
    detector.add(1.5 - 3**-0.5)  # the sample's sd is 1/sqrt(3)
    assert detector.statistic == pytest.approx(1)


def test_a_baseline_without_spread_does_not_divide_by_zero() -> None:
    detector = DriftDetector(DriftOptions(baseline_scores=10))
    assert feed(detector, np.full(1000, 1.25)) is None
    assert detector.statistic == 0


def test_what_cannot_be_a_baseline_is_refused() -> None:
    for wrong in ({"mean": 1, "sd": 0}, {"mean": float("nan"), "sd": 1}, {"mean": 1}):
        with pytest.raises(ValidationError):
            ScoreBaseline.model_validate(wrong)


@pytest.mark.parametrize("draw", [like(HEALTHY), skewed], ids=["concise", "skewed"])
def test_ten_thousand_healthy_scores_raise_no_alarm(draw: Draw) -> None:
    for seed in range(20):
        detector = DriftDetector()
        assert feed(detector, draw(np.random.default_rng(seed), 500 + 10_000)) is None
        assert detector.statistic is not None


@pytest.mark.parametrize(
    ("damaged", "median", "p95"),
    [(NOISE_003, 70, 150), (NOISE_005, 16, 20), (BLANK, 10, 12)],  # found: 64.5 and 143, 15.5 and 19, 10 and 11
    ids=["noise 0.03", "noise 0.05", "blank"],
)
def test_a_damaged_model_is_found_within_so_many_scores(damaged: list[float], median: float, p95: float) -> None:
    delays = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        detector = DriftDetector()
        assert feed(detector, like(HEALTHY)(random, 500 + 2000)) is None
        delay = feed(detector, like(damaged)(random, 1000))
        assert delay is not None
        delays.append(delay)
    assert np.median(delays) <= median
    assert np.percentile(delays, 95) <= p95


def test_the_alarm_ends_once_the_scores_are_well_again() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        detector = DriftDetector()
        assert feed(detector, like(HEALTHY)(random, 1000)) is None
        for score in like(NOISE_005)(random, 2000).tolist():
            detector.add(score)
        assert detector.alarm
        recovered = 0
        while detector.alarm:
            detector.add(like(HEALTHY)(random, 1).item())
            recovered += 1
        assert recovered < 160  # 2 h / k is 80 in the mean


@pytest.fixture(scope="module")
def pipeline() -> CaptionPipeline:
    needs_shared.check()
    if not {DEFAULT_MODEL, DEFAULT_SCORER} <= {entry.id for entry in list_models()}:
        pytest.skip("the bundled models are not there")
    return load_pipeline("concise", scorer=DEFAULT_SCORER, device="cpu")


def scores_of(pipeline: CaptionPipeline, images: list[Image.Image]) -> np.ndarray:
    result = pipeline.caption(images, parse_decode(None, pipeline.card.decoding), score=True)
    return np.array([captions[0].clip_score for captions in result.captions], dtype=float)


@needs_shared
def test_real_captions_of_another_domain_raise_none_and_blank_pictures_do(pipeline: CaptionPipeline) -> None:
    paths = sorted((SHARED / "coco_sample" / "images").iterdir())
    healthy = scores_of(pipeline, [read_image(path).image for path in paths])
    assert len(healthy) == 80
    for seed in range(20):
        random = np.random.default_rng(seed)
        assert feed(DriftDetector(), random.choice(healthy, 500 + 10_000)) is None
    blank = scores_of(pipeline, [Image.new("RGB", (224, 224), (n * 37 % 256, n * 91 % 256, 90)) for n in range(20)])
    detector = DriftDetector()
    assert feed(detector, np.tile(healthy, 8)) is None
    assert feed(detector, np.tile(blank, 5)) is not None
