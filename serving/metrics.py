"""Every Prometheus metric of limner: names, labels, buckets, and the registry that the monitor renders.

Names carry base units; labels never hold anything a client wrote.
"""

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from serving.reports import Report

REQUESTS = "limner_requests_total"
REQUEST_DURATION = "limner_request_duration_seconds"
ERRORS = "limner_errors_total"
STAGE_DURATION = "limner_stage_duration_seconds"
QUEUE_IMAGES = "limner_queue_images"
BATCH_IMAGES = "limner_batch_images"
CAPTIONS = "limner_captions_total"
REPORTS_LOST = "limner_reports_lost_total"
EXPERIMENT_IMAGES = "limner_experiment_images_total"
OUTCOMES_LOST = "limner_outcomes_lost_total"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    REQUESTS: ("HTTP requests answered", ("route", "status")),
    ERRORS: ("errors sent to clients, whole requests and single images", ("code",)),
    CAPTIONS: ("captions written", ("model", "strategy")),
    REPORTS_LOST: ("measurements that did not reach the monitor", ()),
    EXPERIMENT_IMAGES: ("images of requests that took part in an experiment", ("experiment", "arm")),
    OUTCOMES_LOST: ("outcomes of experiments that did not reach the ledger", ()),
}
HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    REQUEST_DURATION: ("from the head of a request to the end of its answer", ("route",), _SECONDS),
    STAGE_DURATION: ("queue per image; encode, decode and score per forward pass", ("stage",), _SECONDS),
    BATCH_IMAGES: ("images that shared a forward pass", (), _IMAGES),
}
GAUGES: dict[str, str] = {QUEUE_IMAGES: "images that wait, over all replicas"}

_SILENT_AFTER_S = 15.0


class Metrics:
    """The metric objects and the only registry they live in; takes reports, renders the exposition text."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a gauge beside every counter: noise
        self._registry = CollectorRegistry()
        self._counters = {
            name: Counter(name, text, labels, registry=self._registry) for name, (text, labels) in COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(name, text, labels, buckets=buckets, registry=self._registry)
            for name, (text, labels, buckets) in HISTOGRAMS.items()
        }
        self._gauges = _SourceGauges(clock)
        self._registry.register(self._gauges)

    def apply(self, report: Report) -> None:
        """Add what one process measured."""
        for (name, labels), amount in report.counts.items():
            counter = self._counters[name]
            (counter.labels(*labels) if labels else counter).inc(amount)
        for name, labels, value in report.observations:
            histogram = self._histograms[name]
            (histogram.labels(*labels) if labels else histogram).observe(value)
        self._gauges.update(report)

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self._registry)


class _SourceGauges(Collector):
    """Gauges as sums over the processes that reported lately; a silent one no longer counts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._latest: dict[str, tuple[float, dict[str, float]]] = {}

    def update(self, report: Report) -> None:
        self._latest[report.source] = (self._clock(), report.gauges)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        oldest = self._clock() - _SILENT_AFTER_S
        self._latest = {source: entry for source, entry in self._latest.items() if entry[0] >= oldest}
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(name, text, sum(values.get(name, 0.0) for _, values in self._latest.values()))
