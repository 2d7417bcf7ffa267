"""Evaluation metrics: the table, and how a list of names becomes metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from models.errors import MissingDependencyError, RequestError
from models.lookup import resolve
from training.metrics.interface import Metric, Need, in_words
from training.options import parse_options

METRICS = {
    "bleu": "training.metrics.bleu:Bleu",
    "cider": "training.metrics.cider:Cider",
    "clip_score": "training.metrics.clip_score:ClipScore",
    "consensus": "training.metrics.consensus:Consensus",
    "content_words": "training.metrics.content_words:ContentWords",
    "cut": "training.metrics.cut:Cut",
    "distinct": "training.metrics.distinct:Distinct",
    "div": "training.metrics.div:Div",
    "length": "training.metrics.length:Length",
    "lexical_diversity": "training.metrics.lexical_diversity:LexicalDiversity",
    "mbleu": "training.metrics.mbleu:Mbleu",
    "meteor": "training.metrics.meteor:Meteor",
    "novelty": "training.metrics.novelty:Novelty",
    "oracle": "training.metrics.oracle:Oracle",
    "own_retrieval": "training.metrics.own_retrieval:OwnRetrieval",
    "perplexity": "training.metrics.perplexity:Perplexity",
    "ref_clip_score": "training.metrics.ref_clip_score:RefClipScore",
    "repetition": "training.metrics.repetition:Repetition",
    "rouge_l": "training.metrics.rouge_l:RougeL",
    "self_cider": "training.metrics.self_cider:SelfCider",
    "self_retrieval": "training.metrics.self_retrieval:SelfRetrieval",
    "spice": "training.metrics.spice:Spice",
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
        MissingDependencyError: a package or program that a metric needs is absent.
    """
    built: dict[str, Metric] = {}
    for raw in specs:
        spec = parse_options(f"metric {raw!r}", MetricSpec, {"name": raw} if isinstance(raw, str) else raw)
        metric = resolve("metric", METRICS, spec.name)
        if spec.name in built:
            raise RequestError("invalid_request", f"metric {spec.name!r} is named twice")
        built[spec.name] = metric(parse_options(f"metric {spec.name!r}", metric.Options, spec.options))
    return built


def available_metrics(given: Iterable[Need], *, java: bool = True) -> tuple[dict[str, Metric], dict[str, str]]:
    """Every metric that can be computed from what is given with its default options, and why each other one cannot.

    Args:
        java: False leaves out metrics that start a Java program.
    """
    built: dict[str, Metric] = {}
    left_out: dict[str, str] = {}
    needs_met = frozenset(given)
    for name in METRICS:
        metric_class = resolve("metric", METRICS, name)
        if not java and metric_class.uses_java:
            left_out[name] = "it starts a Java program of its own, and is computed where it is named"
            continue
        if required := [key for key, field in metric_class.Options.model_fields.items() if field.is_required()]:
            left_out[name] = f"it has no default for {', '.join(required)}, and is computed where it is named with them"
            continue
        try:
            metric = build_metrics([name])[name]
        except MissingDependencyError as error:
            left_out[name] = error.detail
            continue
        if lacking := metric.needs - needs_met:
            left_out[name] = f"it needs {in_words(lacking)}"
        else:
            built[name] = metric
    return built, left_out
