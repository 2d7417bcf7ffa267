"""Who gets which arm."""

import math
from collections import Counter

import pytest

from models.errors import RequestError, UnknownNameError
from serving.experiments.assignment import arm_of, assign, is_scored, uniform
from serving.experiments.definition import Arm, Experiment

UNITS = [f"user-{number}" for number in range(20_000)]


def experiment(weights: dict[str, float], name: str = "tone") -> Experiment:
    return Experiment(name=name, arms=tuple(Arm(label=label, weight=weight) for label, weight in weights.items()))


def labels(weights: dict[str, float], name: str = "tone") -> list[str]:
    asked = experiment(weights, name)
    return [arm_of(asked, unit).label for unit in UNITS]


def within_bounds(count: int, share: float, of: int = len(UNITS)) -> bool:
    """Within 4 standard deviations of a binomial."""
    return abs(count - share * of) < 4 * math.sqrt(of * share * (1 - share))


@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 1, "b": 9}, {"a": 0.2, "b": 0.3, "c": 0.5, "d": 3}])
def test_shares_are_those_of_the_weights(weights: dict[str, float]) -> None:
    counts = Counter(labels(weights))
    for label, weight in weights.items():
        assert within_bounds(counts[label], weight / sum(weights.values()))


def test_it_is_sticky_and_scale_and_order_of_the_arms_do_not_matter() -> None:
    assert labels({"a": 1, "b": 2}) == labels({"a": 1, "b": 2}) == labels({"b": 4, "a": 2})


@pytest.mark.parametrize(
    ("after", "from_arms", "to_arms", "share"),
    [
        ({"a": 2, "b": 1, "c": 1}, {"b", "c"}, {"a"}, 2 / 4 - 1 / 3),
        ({"a": 0.5, "b": 1, "c": 1}, {"a"}, {"b", "c"}, 1 / 3 - 0.5 / 2.5),
        ({"a": 0, "b": 1, "c": 1}, {"a"}, {"b", "c"}, 1 / 3),
        ({"a": 1, "b": 1, "c": 1, "new": 1}, {"a", "b", "c"}, {"new"}, 1 / 4),
    ],
)
def test_a_changed_weight_moves_no_more_units_than_it_must(
    after: dict[str, float], from_arms: set[str], to_arms: set[str], share: float
) -> None:
    moved = [pair for pair in zip(labels({"a": 1, "b": 1, "c": 1}), labels(after), strict=True) if pair[0] != pair[1]]
    assert {old for old, _ in moved} == from_arms
    assert {new for _, new in moved} == to_arms
    assert within_bounds(len(moved), share)


def test_experiments_are_independent() -> None:
    both = Counter(zip(labels({"a": 1, "b": 1}, "one"), labels({"a": 1, "b": 1}, "two"), strict=True))
    assert all(within_bounds(both[pair], 1 / 4) for pair in (("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")))


def test_assignments_never_change() -> None:
    """Frozen: another hash would move users of running experiments."""
    asked = experiment({"a": 1, "b": 2, "c": 3})
    given = [arm_of(asked, unit).label for unit in ("", "0", "user-1", "user-2", "ünit", "\U0001f436", "x" * 256)]
    assert given == ["c", "c", "b", "b", "c", "c", "b"]
    assert [is_scored(f"r-{number}", 0.5) for number in range(8)] == [
        True,
        False,
        False,
        False,
        False,
        True,
        True,
        True,
    ]
    assert uniform("a", "b") == 0.7731996086655398


def test_parts_are_told_apart() -> None:
    assert len({uniform("ab", "c"), uniform("a", "bc"), uniform("abc"), uniform("abc", "")}) == 4
    assert all(0 < uniform(unit) < 1 for unit in UNITS)


def test_the_scored_share() -> None:
    assert within_bounds(sum(is_scored(unit, 0.1) for unit in UNITS), 0.1)
    assert all(is_scored(unit, 1.0) for unit in UNITS)
    assert not any(is_scored(unit, 0.0) for unit in UNITS)
    assert all(is_scored(unit, 0.3) for unit in UNITS if is_scored(unit, 0.2))


def test_scoring_and_arms_are_independent() -> None:
    arms = Counter(arm for arm, unit in zip(labels({"a": 1, "b": 1}), UNITS, strict=True) if is_scored(unit, 0.3))
    assert within_bounds(arms["a"], 0.5, of=arms.total())


def test_what_cannot_be_assigned_is_refused() -> None:
    running = (experiment({"a": 1, "b": 1}),)
    assert assign(running, "tone", "user-1").label in {"a", "b"}
    with pytest.raises(UnknownNameError, match="no experiment 'other' runs here; there are: tone") as unknown:
        assign(running, "other", "user-1")
    assert unknown.value.code == "unknown_experiment"
    with pytest.raises(UnknownNameError, match="there are: none"):
        assign((), "other", None)
    for unit in (None, "", "x" * 257, "a\0b", "\ud800", "line\nbreak"):
        with pytest.raises(RequestError, match="unit: experiment 'tone' needs one") as invalid:
            assign(running, "tone", unit)
        assert invalid.value.code == "invalid_request"
