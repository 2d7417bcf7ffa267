"""The documents of this repository show the tables of its results."""

from pathlib import Path

import pytest

from training.documents import with_tables
from training.tables import tables

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["README.md", "docs/PAPERS.md"])
def test_documents_show_the_committed_results(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert with_tables(text, tables(ROOT / "docs" / "results"), name) == text, "run make tables"
