"""Which metrics an evaluation computes, of those asked for and those that can be had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from models.lookup import resolve
from training.evaluation.settings import DEFAULT_METRICS
from training.metrics import METRICS, available_metrics, build_metrics
from training.metrics.interface import Metric, Need
from training.metrics.measure import check_needs

Spec = str | Mapping[str, Any]

_DISTRACTORS = "distractors"
"""The need, and the option of the metrics that have a use for it."""


_COSTLY = "it takes long, and is computed where it is named"


class MetricChoice:
    """The metrics that were named, built at once, and the default ones, once it is known what there is."""

    def __init__(self, specs: Sequence[Spec] | None, *, distractors: bool) -> None:
        """Builds what is named.

        Args:
            distractors: metrics that can use them do.

        Raises:
            UnknownNameError: no such metric.
            RequestError: a metric is named twice, or options do not fit.
            MissingDependencyError: a package or program that a metric needs is absent.
        """
        specs = [DEFAULT_METRICS] if specs is None else list(specs)
        self._distractors = distractors
        self._with_default = DEFAULT_METRICS in specs
        self._named = build_metrics([self._completed(spec) for spec in specs if spec != DEFAULT_METRICS])

    @property
    def needs(self) -> frozenset[Need]:
        """All that the named metrics need."""
        return frozenset().union(*(metric.needs for metric in self._named.values()))

    def choose(self, given: frozenset[Need], on_demand: frozenset[Need]) -> tuple[dict[str, Metric], dict[str, str]]:
        """The metrics in the order of their table, and why each default one is left out.

        Args:
            given: what there is anyway.
            on_demand: what is costly, and computed for metrics that were named only.

        Raises:
            RequestError: ``unsupported_option``, a named metric needs what is in neither.
        """
        check_needs(self._named, given | on_demand)
        if not self._with_default:
            return self._named, {}
        found, left_out = available_metrics(given, java=False)
        could_be_had, _ = available_metrics(given | on_demand)
        chosen = {**{name: self._rebuilt(name, metric) for name, metric in found.items()}, **self._named}
        ordered = {name: chosen[name] for name in METRICS if name in chosen}
        reasons = left_out | {name: _COSTLY for name in could_be_had}
        return ordered, {name: reasons[name] for name in left_out if name not in chosen}

    def _completed(self, spec: Spec) -> Spec:
        """The spec, told of distractors where the metric can use them and nothing else was said."""
        raw: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
        name = raw.get("name")
        if not self._distractors or not isinstance(name, str) or name not in METRICS:
            return spec
        if _DISTRACTORS not in resolve("metric", METRICS, name).Options.model_fields:
            return spec
        return {**raw, "options": {_DISTRACTORS: True, **raw.get("options", {})}}

    def _rebuilt(self, name: str, metric: Metric) -> Metric:
        spec = self._completed(name)
        return metric if spec == name else build_metrics([spec])[name]
