"""Results, worked out by hand where they can be."""

import numpy as np
import pytest

from serving.experiments.statistics import MIN_UNITS, ArmData, results


def scores(mean: float, units: int, sd: float = 0.1) -> np.ndarray:
    """Exactly this mean and standard deviation."""
    drawn = np.random.default_rng(units).standard_normal(units)
    standard = (drawn - drawn.mean()) / drawn.std(ddof=1)
    return mean + sd * standard


def test_one_arm_by_itself() -> None:
    arm = ArmData(
        label="a",
        images=9,
        units=4,
        unit_scores=np.array([0.5, 0.6, 0.7]),
        latencies_ms=np.arange(1.0, 102.0),
        mean_words=9.5,
        captions=("a dog runs", "a dog sits", "a cat"),
        votes_up=3,
        votes_down=1,
        missing=2,
        other_scorer=1,
        errors={"truncated": 1},
    )
    found = results((arm, ArmData("b", captions=("two words", "two more"))))
    a, b = found.arms
    assert (a.units, a.images, a.scored_units, a.words) == (4, 9, 3, 9.5)
    assert a.clip_score == pytest.approx(0.6)
    assert a.clip_score_interval == pytest.approx(
        (0.6 - 0.2484, 0.6 + 0.2484), abs=1e-4
    )  # t(2) = 4.303, times 0.1/sqrt 3
    assert (a.latency_p50_ms, a.latency_p95_ms) == (51, 96)
    assert (found.diversity_captions, a.distinct_words, b.distinct_words) == (2, 4, 3)
    assert (a.votes_up, a.votes_down, a.missing, a.other_scorer, a.errors) == (3, 1, 2, 1, {"truncated": 1})
    assert (b.clip_score, b.clip_score_interval, b.words, b.latency_p50_ms) == (None, None, None, None)


def test_an_arm_that_nobody_saw_does_not_hide_the_diversity_of_the_others() -> None:
    found = results((ArmData("a", captions=("one two",)), ArmData("b"), ArmData("c", captions=("x", "y"))))
    assert [arm.distinct_words for arm in found.arms] == [2, None, 1]


def test_a_pair() -> None:
    found = results((ArmData("a", unit_scores=scores(0.75, 2000)), ArmData("b", unit_scores=scores(0.70, 2000))))
    [pair] = found.pairs
    assert (pair.a, pair.b, found.pairwise_alpha) == ("a", "b", 0.05)
    assert pair.effect == pytest.approx(0.05)
    assert pair.effect_sd == pytest.approx(0.5)
    assert pair.welch_interval == pytest.approx((0.05 - 0.0062, 0.05 + 0.0062), abs=1e-4)
    assert pair.confidence_sequence == pytest.approx((0.05 - 0.0096, 0.05 + 0.0096), abs=1e-4)
    assert pair.verdict == "a better"


@pytest.mark.parametrize(
    ("a", "b", "units", "verdict"),
    [
        (0.7, 0.9, MIN_UNITS, "b better"),
        (0.9, 0.7, MIN_UNITS, "a better"),
        (0.7, 0.9, MIN_UNITS - 1, "undecided"),
        (0.70, 0.701, 2000, "undecided"),
        (0.70, 0.707, 2000, "undecided"),  # one look's interval leaves out zero, that for many looks does not
    ],
)
def test_verdicts(a: float, b: float, units: int, verdict: str) -> None:
    [pair] = results((ArmData("a", unit_scores=scores(a, units)), ArmData("b", unit_scores=scores(b, units)))).pairs
    assert pair.verdict == verdict


def test_three_arms_share_the_error() -> None:
    arms = tuple(ArmData(label, unit_scores=scores(0.7, 500)) for label in "abc")
    found = results(arms)
    assert [(pair.a, pair.b) for pair in found.pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found.pairwise_alpha == pytest.approx(0.05 / 3)
    [alone] = results(arms[:2]).pairs
    assert alone.confidence_sequence is not None and found.pairs[0].confidence_sequence is not None
    assert found.pairs[0].confidence_sequence[1] > alone.confidence_sequence[1]
    assert found.pairs[0].welch_interval == alone.welch_interval


def test_nothing_yet() -> None:
    [pair] = results((ArmData("a"), ArmData("b"))).pairs
    assert (pair.effect, pair.effect_sd, pair.welch_interval, pair.confidence_sequence) == (None, None, None, None)
    assert pair.verdict == "undecided"


def test_a_scorer_that_gives_one_number_decides_nothing() -> None:
    """0.1 + 0.2 summed a thousand times is not the same last bit for every n."""
    same = (ArmData("a", unit_scores=np.full(997, 0.1 + 0.2)), ArmData("b", unit_scores=np.full(1301, 0.1 + 0.2)))
    [pair] = results(same).pairs
    assert (pair.confidence_sequence, pair.effect_sd, pair.verdict) == (None, None, "undecided")
