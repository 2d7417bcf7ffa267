"""Tables of results, and the command that prints them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from models.errors import DataError
from tests.training.evaluation.support import evaluation, measurement
from training.comparison import Comparison
from training.report import Difference, Estimate, Evaluation, to_json, write_text
from training.tables import print_tables, tables

ONE = evaluation("one", words=8.0, r_at_1=0.2, clip_score=0.7)
BETTER = Estimate((0.3, 0.5), "percentile", Difference("one", 0.2, (0.1, 0.3), 0.001, "a test"))
TWO = replace(evaluation("two", words=12.0, r_at_1=0.4, clip_score=0.6), estimates={("r_at_1", "s"): BETTER})


def put(folder: Path, name: str, *results: Evaluation) -> None:
    """The file of one evaluation, or of the comparison of several."""
    folder.mkdir(parents=True, exist_ok=True)
    body = results[0].to_body() if len(results) == 1 else Comparison(results, "a method").to_body()
    write_text(folder / f"{name}.json", to_json(body))


def layout(folder: Path, **content: object) -> None:
    (folder / "table.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_folder_is_a_table_and_a_file_a_row(tmp_path: Path) -> None:
    put(tmp_path / "b", "1", replace(ONE, estimates={}))
    put(tmp_path / "b", "2", TWO)
    put(tmp_path / "a", "both", ONE, TWO)
    first, second = tables(tmp_path).values()
    assert first.splitlines() == [
        "### a",
        "",
        "| | mean_words | clip_score x100 | r_at_1 x100 |",
        "|---|---:|---:|---:|",
        "| one | 8.00 [7.00, 10.00] | 70.00 | 20.00 |",
        "| two | 12.00 | 60.00 | 40.00 [30.00, 50.00]* |",
        "",
        'split test; images 4; decode {"name": "beam", "options": {}}; scorers s.',
        "In brackets: 95 % intervals over images; *: p < 0.01 against one, not corrected for the number of tests.",
    ]
    assert second.splitlines()[4:6] == [
        "| one | 8.00 | 70.00 | 20.00 |",
        "| two | 12.00 | 60.00 | 40.00 [30.00, 50.00]* |",
    ]


def test_a_layout_chooses_title_columns_and_rows(tmp_path: Path) -> None:
    second = Evaluation("two", TWO.context, (*TWO.measurements, measurement("r_at_1", 0.9, 100, "t")))
    put(tmp_path, "1", ONE)
    put(tmp_path, "2", second)
    layout(tmp_path, title="Of note", columns=["r_at_1", "clip_score@s"], order=["two", "one"])
    (table,) = tables(tmp_path).values()
    assert table.splitlines()[0] == "### Of note"
    assert table.splitlines()[2] == "| | r_at_1 x100 (s) | r_at_1 x100 (t) | clip_score x100 (s) |"
    assert table.splitlines()[4:6] == ["| two | 40.00 | 90.00 | 60.00 |", "| one | 20.00 |  | 70.00 |"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"columns": ["bleu4"]}, "no result has 'bleu4'"),
        ({"columns": ["r_at_1@t"]}, "no result has 'r_at_1@t'"),
        ({"order": ["three"]}, "no result is called 'three'"),
        ({"sort": "x"}, "sort: Extra inputs"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(tmp_path: Path, content: dict[str, object], message: str) -> None:
    put(tmp_path, "1", ONE)
    layout(tmp_path, **content)
    with pytest.raises(DataError, match=message):
        tables(tmp_path)


def test_the_command_prints_and_fails_in_one_line(tmp_path: Path) -> None:
    def command() -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, "-m", "training.tables", str(tmp_path)]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    failed = command()
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: no_data: ") and failed.stderr.count("\n") == 1
    put(tmp_path, "1", ONE)
    done = command()
    assert (done.returncode, done.stdout, done.stderr) == (0, tables(tmp_path)[tmp_path.name], "")


def test_intervals_can_be_left_out(tmp_path: Path) -> None:
    put(tmp_path, "both", ONE, TWO)
    layout(tmp_path, intervals=False)
    (table,) = tables(tmp_path).values()
    assert table.splitlines()[4:6] == ["| one | 8.00 | 70.00 | 20.00 |", "| two | 12.00 | 60.00 | 40.00* |"]
    assert table.splitlines()[-1] == "*: p < 0.01 against one, not corrected for the number of tests."


def test_documents_hold_the_tables_that_they_name(tmp_path: Path) -> None:
    put(tmp_path / "results" / "a", "both", ONE, TWO)
    document = tmp_path / "text.md"
    document.write_text("Before.\n<!-- results: a -->\nold\n<!-- end of results -->\nAfter.\n", encoding="utf-8")
    print_tables(tmp_path / "results", [document])
    (table,) = tables(tmp_path / "results").values()
    filled = f"Before.\n<!-- results: a -->\n\n{table}\n<!-- end of results -->\nAfter.\n"
    assert document.read_text(encoding="utf-8") == filled
    print_tables(tmp_path / "results", [document])
    assert document.read_text(encoding="utf-8") == filled


@pytest.mark.parametrize(
    ("text", "message"),
    [("<!-- results: b -->\n<!-- end of results -->", "no results 'b'; there are: a"), ("text", "has no place for")],
)
def test_documents_without_a_place_are_refused(tmp_path: Path, text: str, message: str) -> None:
    put(tmp_path / "results" / "a", "both", ONE, TWO)
    document = tmp_path / "text.md"
    document.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        print_tables(tmp_path / "results", [document])
