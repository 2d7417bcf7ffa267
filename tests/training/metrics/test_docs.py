"""docs/METRICS.md describes every metric, every number and every option."""

import re
from pathlib import Path

import pytest

from models.lookup import resolve
from tests.training.metrics.helpers import write_language_model
from training.metrics import METRICS, build_metrics
from training.metrics.interface import Metric

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "METRICS.md"


def sections() -> dict[str, str]:
    """The text under the heading of each metric."""
    parts = re.split(r"^### `(\w+)`$", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def built(name: str, folder: Path) -> Metric:
    """The metric with its default options; one that Java may be missing for is not asked to look for it."""
    metric: type[Metric] = resolve("metric", METRICS, name)
    if metric.uses_java:
        return object.__new__(metric)
    options = {"model": str(write_language_model(folder)), "device": "cpu"} if name == "perplexity" else {}
    return build_metrics([{"name": name, "options": options}])[name]


def test_every_metric_has_a_section_and_no_section_is_left_over() -> None:
    assert sections().keys() == METRICS.keys()


@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_number_and_option_is_described(name: str, tmp_path: Path) -> None:
    text, metric = " ".join(sections()[name].split()), built(name, tmp_path)
    words = [*metric.definitions(), *(option for option in type(metric).Options.model_fields if option != "best")]
    assert [word for word in words if f"`{word}`" not in text] == []
    for part in ("- Traps: ", "- Checked against: "):
        assert text.count(part) == 1, part
    assert re.search(r"[Cc]orpus|[Mm]ean over|per image|[Ll]evel", text), "the level of aggregation"


def test_the_option_that_sets_share_is_described_once_for_all() -> None:
    assert "option `best`" in DOCUMENT.read_text(encoding="utf-8")
