"""Dashboard and alert rules ask for what the code has, and for all of it that there is to see."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from serving import metrics
from serving.drift import DriftOptions

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "limner.json").read_text("utf-8"))
RULES = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text("utf-8"))

SERIES = {
    *metrics.COUNTERS,
    *metrics.GAUGES,
    *metrics.MODEL_GAUGES,
    *(name + suffix for name in metrics.HISTOGRAMS for suffix in ("_bucket", "_sum", "_count")),
}
LABELS = {
    "instance",  # instance and job come from the scrape
    "job",
    "le",
    "model",
    *(label for _, labels in metrics.COUNTERS.values() for label in labels),
    *(label for _, labels, _ in metrics.HISTOGRAMS.values() for label in labels),
}


def panels() -> Iterator[dict[str, object]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def dashboard_expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def rule_expressions() -> list[str]:
    return [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]


def used_labels(expression: str) -> set[str]:
    grouped = [name.strip() for names in re.findall(r"\bby \(([^)]*)\)", expression) for name in names.split(",")]
    matched = [
        name for inside in re.findall(r"\{([^}]*)\}", expression) for name in re.findall(r"(\w+)\s*=?[=~!]", inside)
    ]
    return {*grouped, *matched}


@pytest.mark.parametrize("expression", [*dashboard_expressions(), *rule_expressions()])
def test_every_metric_and_label_exists(expression: str) -> None:
    found = set(re.findall(r"limner_\w+", expression)) or {"up"}
    assert found - SERIES <= {"up"}
    assert used_labels(expression) <= LABELS


def test_the_variables_ask_for_what_exists() -> None:
    queries = [str(variable["query"]) for variable in DASHBOARD["templating"]["list"]]
    assert set(re.findall(r"limner_\w+", " ".join(queries))) <= SERIES


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set(re.findall(r"limner_\w+", " ".join(dashboard_expressions())))
    families = {*metrics.COUNTERS, *metrics.HISTOGRAMS, *metrics.GAUGES, *metrics.MODEL_GAUGES}
    assert {name for name in families if not any(series.startswith(name) for series in shown)} == set()


def test_the_dashboard_is_one_that_grafana_can_lay_out() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for panel in panels())
    assert all(panel["title"] and panel["description"] for panel in panels())
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)  # nothing lies over anything else
    assert max(x for x, _ in cells) < 24


def test_the_line_of_the_drift_panel_is_the_threshold() -> None:
    [panel] = [panel for panel in DASHBOARD["panels"] if panel["title"] == "CLIPScore drift"]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert steps[-1]["value"] == DriftOptions().threshold_sd
    assert f"at {DriftOptions().threshold_sd:g} an alarm is raised" in panel["description"]


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert rule["alert"].startswith("Limner")
            assert rule["labels"]["severity"] in {"warning", "critical"}
            assert len(rule["annotations"]["description"]) > len(rule["annotations"]["summary"]) > 20


def test_the_alerts_are_there() -> None:
    alerts = {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    assert {"LimnerClipScoreDrift", "LimnerErrorRate", "LimnerQueueSaturated", "LimnerScorerDown"} <= alerts
