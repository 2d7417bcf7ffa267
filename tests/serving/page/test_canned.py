"""The made-up answers have the form of the real ones."""

from dataclasses import fields

import pytest

from serving import metrics
from serving.compare_schemas import CompareResponse
from serving.experiments.definition import Experiment
from serving.experiments.statistics import ArmResult, PairResult
from serving.schemas import IndexedResult, SpectrumOut, TimingOut
from tests.serving.page.canned import EXPERIMENTS, METRICS, RESULTS, SPECTRUM, caption


def test_captions_and_comparisons() -> None:
    SpectrumOut.model_validate(SPECTRUM)
    IndexedResult.model_validate(caption(0.35, 3))
    timing = TimingOut(queue=0, encode=0, decode=0, score=0, total=0)
    arm = {"label": "A", "model": "dial", "results": [caption(None)]}
    CompareResponse.model_validate({"id": "r", "arms": [arm], "timing_ms": timing})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments(name: str) -> None:
    Experiment.model_validate({**EXPERIMENTS[name], "arms": tuple(EXPERIMENTS[name]["arms"])})  # type: ignore[dict-item]
    for kind, rows in ((ArmResult, RESULTS[name]["arms"]), (PairResult, RESULTS[name]["pairs"])):
        known = {field.name for field in fields(kind)}
        assert all(set(row) <= known for row in rows)


def test_metrics() -> None:
    known = {*metrics.COUNTERS, *metrics.GAUGES, *metrics.MODEL_GAUGES}
    known |= {f"{name}_{part}" for name in metrics.HISTOGRAMS for part in ("bucket", "sum", "count")}
    asked = {line.partition("{")[0].partition(" ")[0] for line in METRICS.splitlines() if not line.startswith("#")}
    assert asked <= known
