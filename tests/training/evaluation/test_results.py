"""Reading back what evaluations and comparisons write."""

import json
from pathlib import Path

import pytest

from models.errors import DataError
from tests.training.evaluation.support import evaluation
from training.comparison import Comparison
from training.evaluation.results import read_results
from training.report import Difference, Estimate, Evaluation

ONE = evaluation("one", words=8.0, r_at_1=0.2, clip_score=0.7)
DIFFERENCE = Estimate((1.0, 2.0), "jackknife", Difference("one", 0.5, (0.1, 0.9), 0.01, "a test"))
TWO = Evaluation("two", ONE.context, ONE.measurements, estimates={("r_at_1", "s"): DIFFERENCE})


def test_an_evaluation_comes_back(tmp_path: Path) -> None:
    ONE.write(tmp_path)
    assert read_results(tmp_path / "evaluation.json") == [ONE]


def test_a_comparison_comes_back_as_its_evaluations(tmp_path: Path) -> None:
    Comparison((ONE, TWO), "a method").write(tmp_path)
    assert read_results(tmp_path / "comparison.json") == [ONE, TWO]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "label and measurements"),
        ({"evaluations": []}, "label and measurements"),
        ({"label": "x"}, "label and measurements"),
        ({"label": "x", "measurements": [{"name": "r_at_1"}]}, "is no evaluation"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_results(path)
