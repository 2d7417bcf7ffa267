"""Comparison of two captioners that differ in a known way."""

import json
from pathlib import Path

import pytest

from tests.training.evaluation.support import write_splits
from training.compare import compare
from training.comparison import Comparison
from training.evaluate import evaluate_each
from training.evaluation.settings import EvaluationSettings, Subject

METRICS = ["length", "repetition", "vocabulary", "bleu", "cider", "content_words"]
FIRST = ["a red picture", "a green picture", "a blue picture", "a grey picture"]
SECOND = ["a red picture of paint", "green", "a blue picture of a sea", "a grey wall a grey wall a grey wall"]


def file(folder: Path, name: str, captions: list[str]) -> Subject:
    path = folder / f"{name}.json"
    path.write_text(json.dumps([{"image_id": n, "caption": c} for n, c in enumerate(captions)]), encoding="utf-8")
    return Subject(str(path), is_file=True)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("compare")
    subjects = [file(folder, "first", FIRST), file(folder, "second", SECOND), file(folder, "third", FIRST)]
    settings = EvaluationSettings(metrics=METRICS, tokenizer="python", device="cpu")
    return compare(evaluate_each(subjects, write_splits(folder), settings))


def test_every_number_has_an_interval_around_it(comparison: Comparison) -> None:
    for evaluation in comparison.evaluations:
        assert len(evaluation.estimates) == len(evaluation.measurements) == 11
        for measurement in evaluation.measurements:
            estimate = evaluation.estimate(measurement)
            assert estimate is not None
            low, high = estimate.interval
            assert low <= measurement.value + 1e-12 and measurement.value <= high + 1e-12, measurement.name


def test_differences_are_to_the_first_on_the_same_images(comparison: Comparison) -> None:
    first, second, _ = comparison.evaluations
    assert all(estimate.difference is None for estimate in first.estimates.values())
    words = second.estimates["mean_words", None].difference
    assert words is not None
    assert (words.to, words.value) == ("first", second.value("mean_words") - first.value("mean_words"))
    assert (words.value, words.test) == (pytest.approx(2.25), "permutation (10,000)")
    assert words.interval[0] < 2.25 < words.interval[1]


def test_tests_suit_their_numbers(comparison: Comparison) -> None:
    differences = {name: of.difference for (name, _), of in comparison.evaluations[1].estimates.items()}
    tests = {name: difference.test for name, difference in differences.items() if difference}
    assert tests["repetition"] == "exact McNemar"
    assert tests["cider"] == tests["content_words"] == "permutation (10,000)"
    assert tests["bleu4"] == tests["vocabulary"] == tests["content_precision"] == "permutation (1,000)"
    repetition = differences["repetition"]
    assert repetition is not None and (repetition.value, repetition.p) == (0.25, 1.0)  # one image of four


def test_counts_of_different_things_have_an_interval_by_the_jackknife(comparison: Comparison) -> None:
    estimates = comparison.evaluations[0].estimates
    assert estimates["vocabulary", None].method == "jackknife"
    assert estimates["mean_words", None].method == "percentile"


def test_what_is_equal_differs_by_nothing(comparison: Comparison) -> None:
    for estimate in comparison.evaluations[2].estimates.values():
        assert estimate.difference is not None
        assert (estimate.difference.value, estimate.difference.interval, estimate.difference.p) == (0, (0, 0), 1)
