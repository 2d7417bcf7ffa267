"""The documents of this repository show the tables of its results."""

from pathlib import Path

from training.documents import with_tables
from training.tables import tables

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_in_the_papers_are_those_of_the_results() -> None:
    text = (DOCS / "PAPERS.md").read_text(encoding="utf-8")
    assert with_tables(text, tables(DOCS / "results"), "PAPERS.md") == text, "run make tables"
