"""What README and docs/PAPERS.md say of the bundled dial stands in its committed results, on the test split."""

import json
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from models.card import SpectrumCard
from models.catalog import find_captioner

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "dial" / "comparison.json"


@pytest.fixture(scope="module")
def rows() -> dict[float, dict[str, list[float]]]:
    """Numbers by descriptiveness and name, one under each scorer."""
    found: dict[float, dict[str, list[float]]] = {}
    for row in json.loads(RESULTS.read_text(encoding="utf-8"))["evaluations"]:
        assert row["split"] == "test" and row["images"] == 1000
        numbers = found.setdefault(row["descriptiveness"], {})
        for measurement in row["measurements"]:
            numbers.setdefault(measurement["name"], []).append(measurement["value"])
    return found


def test_words_rise_with_every_tenth(rows: dict[float, dict[str, list[float]]]) -> None:
    tenths = [number / 10 for number in range(11)]
    words = [rows[at]["mean_words"][0] for at in tenths]
    assert spearmanr(tenths, words).statistic == pytest.approx(1.0)
    assert words[-1] >= 1.4 * words[0]


def test_nothing_of_it_is_worse_at_telling_pictures_apart_than_concise(
    rows: dict[float, dict[str, list[float]]],
) -> None:
    for numbers in rows.values():
        assert numbers["repetition"][0] <= 0.05
        for name in ("r_at_1", "clip_score"):
            assert all(here >= there for here, there in zip(numbers[name], rows[0.0][name], strict=True))


def test_words_that_are_asked_for_are_met_within_one(rows: dict[float, dict[str, list[float]]]) -> None:
    card = find_captioner("dial").card
    assert isinstance(card, SpectrumCard)
    ends = [card.grid[0].expected_words, card.grid[-1].expected_words]
    assert ends[0] is not None and ends[1] is not None
    for wanted in range(round(ends[0]), round(ends[1]) + 1):
        point = min(card.grid, key=lambda each: abs((each.expected_words or 0) - wanted))
        assert abs(rows[point.descriptiveness]["mean_words"][0] - wanted) <= 1, wanted
