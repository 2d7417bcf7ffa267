"""Evaluation metrics: the table, and how a list of names becomes metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from models.errors import RequestError
from models.lookup import resolve
from training.metrics.interface import Metric
from training.options import parse_options

METRICS = {
    "bleu": "training.metrics.bleu:Bleu",
    "cider": "training.metrics.cider:Cider",
    "clip_score": "training.metrics.clip_score:ClipScore",
    "cut": "training.metrics.cut:Cut",
    "distinct": "training.metrics.distinct:Distinct",
    "length": "training.metrics.length:Length",
    "lexical_diversity": "training.metrics.lexical_diversity:LexicalDiversity",
    "repetition": "training.metrics.repetition:Repetition",
    "self_retrieval": "training.metrics.self_retrieval:SelfRetrieval",
    "vocabulary": "training.metrics.vocabulary:Vocabulary",
}


class MetricSpec(BaseModel):
    """A metric by name, with its own options."""

    model_config = ConfigDict(extra="forbid")

    name: str
    options: dict[str, Any] = {}


def build_metrics(specs: Sequence[str | Mapping[str, Any]]) -> dict[str, Metric]:
    """Metrics by name, in the order given; a spec is a name or ``{"name", "options"}``.

    Raises:
        UnknownNameError: no such metric.
        RequestError: ``invalid_request``, a metric named twice, or options that do not fit.
    """
    built: dict[str, Metric] = {}
    for raw in specs:
        spec = parse_options(f"metric {raw!r}", MetricSpec, {"name": raw} if isinstance(raw, str) else raw)
        metric = resolve("metric", METRICS, spec.name)
        if spec.name in built:
            raise RequestError("invalid_request", f"metric {spec.name!r} is named twice")
        built[spec.name] = metric(parse_options(f"metric {spec.name!r}", metric.Options, spec.options))
    return built
