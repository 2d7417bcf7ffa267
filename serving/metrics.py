"""Every Prometheus metric of limner: names, labels, buckets, and the registry that the monitor renders.

Names carry base units; labels never hold anything a client wrote.
"""

import time
from collections.abc import Callable, Collection, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from serving.quality import DIVERSITY_CAPTIONS, Quality, QualitySample
from serving.reports import Report

REQUESTS = "limner_requests_total"
REQUESTS_UNDER_WAY = "limner_requests_under_way"
REQUEST_DURATION = "limner_request_duration_seconds"
ERRORS = "limner_errors_total"
STAGE_DURATION = "limner_stage_duration_seconds"
QUEUE_IMAGES = "limner_queue_images"
BATCH_IMAGES = "limner_batch_images"
CAPTIONS = "limner_captions_total"
FEATURES = "limner_features_total"
REPORTS_LOST = "limner_reports_lost_total"
CAPTION_WORDS = "limner_caption_words"
CLIP_SCORE = "limner_clip_score"
CLIP_SCORE_DRIFT = "limner_clip_score_drift"
CLIP_SCORE_DRIFT_ALARM = "limner_clip_score_drift_alarm"
LEXICAL_DIVERSITY = "limner_lexical_diversity"
CAPTION_REPETITION = "limner_caption_repetition_ratio"
SCORES_SAMPLED = "limner_scores_sampled_total"
SCORES_SHED = "limner_scores_shed_total"
SCORER_UP = "limner_scorer_up"
QUEUE_LIMIT_IMAGES = "limner_queue_limit_images"
EXPERIMENT_IMAGES = "limner_experiment_images_total"
OUTCOMES_LOST = "limner_outcomes_lost_total"
CLIENT_IMAGES = "limner_client_images_total"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)
_WORDS = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 25, 30, 40, 60, 100)
_SCORES = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 2.0, 2.25)

COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    REQUESTS: ("HTTP requests answered", ("route", "status")),
    ERRORS: ("errors sent to clients, whole requests and single images", ("code",)),
    CAPTIONS: ("captions written", ("model", "strategy")),
    FEATURES: ("images whose encoded form was known from a moment ago, or is computed", ("outcome",)),
    REPORTS_LOST: ("measurements that did not reach the monitor", ()),
    SCORES_SAMPLED: ("images picked to be scored off the request path, because their request asked for no score", ()),
    SCORES_SHED: ("images of limner_scores_sampled_total that were given up, because the scorer was busy or down", ()),
    EXPERIMENT_IMAGES: ("images of requests that took part in an experiment", ("experiment", "arm")),
    OUTCOMES_LOST: ("outcomes of experiments that did not reach the ledger", ()),
    CLIENT_IMAGES: ("images that holders of API keys sent to be captioned or scored, by name of the key", ("client",)),
}
HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    REQUEST_DURATION: ("from the head of a request to the end of its answer", ("route", "status"), _SECONDS),
    STAGE_DURATION: ("queue per image; encode, decode and score per forward pass", ("stage",), _SECONDS),
    BATCH_IMAGES: ("images that shared a forward pass", (), _IMAGES),
    CAPTION_WORDS: ("words of the best caption of each image", ("model",), _WORDS),
    CLIP_SCORE: ("CLIPScores of best captions: of requests that asked, and of a sample", ("model",), _SCORES),
}
GAUGES: dict[str, str] = {
    REQUESTS_UNDER_WAY: "requests whose answer is not sent yet, over all ingress replicas",
    QUEUE_IMAGES: "images that wait, over all replicas",
    QUEUE_LIMIT_IMAGES: "images that may wait before requests are refused, over all replicas",
    SCORER_UP: "processes that score the sample; absent where none is to be scored",
}
MODEL_GAUGES: dict[str, str] = {
    CLIP_SCORE_DRIFT: "CUSUM of falls of the CLIPScore, in sd of the baseline; absent before that is made",
    CLIP_SCORE_DRIFT_ALARM: "1 while the CLIPScore has fallen: the CUSUM passed its threshold and is not yet back at 0",
    LEXICAL_DIVERSITY: f"different words in the last {DIVERSITY_CAPTIONS} captions; absent before there are so many",
    CAPTION_REPETITION: f"share, 0 to 1, of the last {DIVERSITY_CAPTIONS} captions that repeat three words in a row",
}
"""Each has the one label ``model``."""

_SILENT_AFTER_S = 15.0


class Metrics:
    """The metric objects and the only registry they live in; takes reports, renders the exposition text."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, quality: Quality | None = None, scorer: bool = True
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a gauge beside every counter: noise
        self._registry = CollectorRegistry()
        self._counters = {
            name: Counter(name, text, labels, registry=self._registry) for name, (text, labels) in COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(name, text, labels, buckets=buckets, registry=self._registry)
            for name, (text, labels, buckets) in HISTOGRAMS.items()
        }
        self._gauges = _SourceGauges(clock, GAUGES if scorer else GAUGES.keys() - {SCORER_UP})
        self._registry.register(self._gauges)
        self._quality = quality or Quality()
        self._registry.register(_ModelGauges(self._quality))

    def apply(self, report: Report) -> None:
        """Add what one process measured."""
        for (name, labels), amount in report.counts.items():
            counter = self._counters[name]
            (counter.labels(*labels) if labels else counter).inc(amount)
        for name, labels, value in report.observations:
            histogram = self._histograms[name]
            (histogram.labels(*labels) if labels else histogram).observe(value)
        for sample in report.samples:
            self._add(sample)
        self._gauges.update(report)

    def _add(self, sample: QualitySample) -> None:
        model, word_count = self._quality.add(sample)
        if word_count is not None:
            self._histograms[CAPTION_WORDS].labels(model).observe(word_count)
        if sample.clip_score is not None:
            self._histograms[CLIP_SCORE].labels(model).observe(sample.clip_score)

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self._registry)


class _SourceGauges(Collector):
    """Gauges as sums over the processes that reported lately; a silent one no longer counts."""

    def __init__(self, clock: Callable[[], float], shown: Collection[str]) -> None:
        self._clock = clock
        self._shown = shown
        self._latest: dict[str, tuple[float, dict[str, float]]] = {}

    def update(self, report: Report) -> None:
        self._latest[report.source] = (self._clock(), report.gauges)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        oldest = self._clock() - _SILENT_AFTER_S
        self._latest = {source: entry for source, entry in self._latest.items() if entry[0] >= oldest}
        for name, text in GAUGES.items():
            family = GaugeMetricFamily(name, text, labels=())
            if name in self._shown:
                family.add_metric((), sum(values.get(name, 0.0) for _, values in self._latest.values()))
            yield family


class _ModelGauges(Collector):
    """What is known of each model's captions; a gauge that cannot be told yet is absent."""

    def __init__(self, quality: Quality) -> None:
        self._quality = quality

    def collect(self) -> Iterable[GaugeMetricFamily]:
        families = {name: GaugeMetricFamily(name, text, labels=("model",)) for name, text in MODEL_GAUGES.items()}
        for model, now in self._quality.gauges():
            values = {
                CLIP_SCORE_DRIFT: now.drift_sd,
                CLIP_SCORE_DRIFT_ALARM: float(now.drift_alarm),
                LEXICAL_DIVERSITY: now.lexical_diversity,
                CAPTION_REPETITION: now.repetition_ratio,
            }
            for name, value in values.items():
                if value is not None:
                    families[name].add_metric((model,), value)
        return families.values()
