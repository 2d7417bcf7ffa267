"""The files that a comparison writes."""

import json
from dataclasses import replace
from pathlib import Path

from tests.training.evaluation.support import evaluation
from training.comparison import Comparison
from training.report import Difference, Estimate

BASE = evaluation("base model", words=8.0, r_at_1=0.2, clip_score=0.7)
APART = Difference("base model", 4.5, (3.25, 5.5), 0.0004, "a test")
LONG = replace(
    evaluation("long/1", words=12.5, r_at_1=0.4, clip_score=0.6),
    context={**BASE.context, "decode": {"name": "greedy", "options": {}}},
    estimates={("mean_words", None): Estimate((12.0, 13.0), "percentile", APART)},
)
COMPARISON = Comparison((BASE, LONG), "How it was done.")


def test_one_table_has_a_column_for_each_captioner() -> None:
    lines = COMPARISON.to_markdown().splitlines()
    assert "| measure | scorer or tokenizer | base model | long/1 |" in lines
    assert "| mean_words |  | 8.00 [7.00, 10.00] | 12.50 [12.00, 13.00]; +4.50 [3.25, 5.50], p < 0.001 |" in lines
    assert "| r_at_1 x100 | s | 20.00 | 40.00 |" in lines
    assert "How it was done." in lines
    assert "| r_at_1 | what it \\| means; a note |" in lines


def test_conditions_are_told_together_or_apart() -> None:
    lines = COMPARISON.to_markdown().splitlines()
    assert "| split | test |" in lines
    assert '| base model: decode | {"name": "beam", "options": {}} |' in lines
    assert '| long/1: decode | {"name": "greedy", "options": {}} |' in lines


def test_every_captioner_has_a_folder_of_its_own(tmp_path: Path) -> None:
    COMPARISON.write(tmp_path / "new")
    written = {str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*.json")}
    assert written == {"comparison.json", "0-base-model/evaluation.json", "1-long-1/evaluation.json"}
    body = json.loads((tmp_path / "new" / "comparison.json").read_text(encoding="utf-8"))
    assert [of["label"] for of in body["evaluations"]] == ["base model", "long/1"]
    assert body["method"] == "How it was done."
