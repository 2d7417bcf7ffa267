"""Plans of experiments: what they may say, and what a wrong one is told."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from models.errors import DataError
from training.experiments import Row, Table, read_experiments

REPOSITORY = Path(__file__).parents[2]
PLAN: dict[str, Any] = {
    "data": {"path": "dataset.json"},
    "scorers": ["scorer"],
    "runs": {"a": {"recipe": "mle.yaml"}},
    "directions": {"up": ["a"]},
    "tables": {"first": {"rows": {"base": {"model": "concise"}, "a": {"run": "a"}, "half": {"mix": {"up": 0.5}}}}},
}


def write(folder: Path, plan: object) -> Path:
    (folder / "experiments.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
    return folder


def test_the_plan_of_the_repository_is_one() -> None:
    plan = read_experiments(REPOSITORY / "docs" / "results")
    assert "smile" in plan.directions
    assert all(table.all_rows() for table in plan.tables.values())


def test_a_plan_is_read(tmp_path: Path) -> None:
    plan = read_experiments(write(tmp_path, PLAN))
    assert plan.tables["first"].all_rows()["half"] == Row(mix={"up": 0.5})
    assert plan.tables["first"].split == "test"


def test_a_plane_has_a_row_for_every_combination() -> None:
    table = Table(rows={"base": Row(model="concise")}, plane={"up": (0, 0.5), "down": (1, 2)})
    assert list(table.all_rows()) == ["base", "up 0, down 1", "up 0, down 2", "up 0.5, down 1", "up 0.5, down 2"]


@pytest.mark.parametrize(
    ("section", "value", "told"),
    [
        ("runs", {}, "directions.up: 'a' is none of the runs"),
        ("directions", {"up": ["a", "b"]}, "'b' is none of the runs: a"),
        ("directions", {}, r"tables.first.rows.half: 'up' is none of the directions"),
        ("tables", {"t": {"rows": {"x": {}}}}, "tables.t.rows.x: .*exactly one of model, run and mix, not none"),
        ("tables", {"t": {"rows": {"x": {"model": "a", "run": "a"}}}}, "not model and run"),
        ("tables", {"t": {"plane": {"up": [1]}}}, "a plane has two directions, not 1"),
        ("tables", {"t": {"row": {}}}, "tables.t.row: "),
        ("tables", {"t": {"split": "dev"}}, "tables.t.split: "),
    ],
)
def test_a_wrong_plan_is_told_where(tmp_path: Path, section: str, value: object, told: str) -> None:
    with pytest.raises(DataError, match=told) as caught:
        read_experiments(write(tmp_path, {**PLAN, section: value}))
    assert caught.value.code == "wrong_schema"


def test_no_plan_and_no_yaml(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read") as caught:
        read_experiments(tmp_path)
    assert caught.value.code == "no_data"
    (tmp_path / "experiments.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(DataError, match="is no YAML"):
        read_experiments(tmp_path)
    with pytest.raises(DataError, match="experiments.yaml: "):
        read_experiments(write(tmp_path, [1]))
