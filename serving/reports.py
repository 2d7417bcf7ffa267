"""Measurements on their way from the process that made them to the monitor: batched, bounded, never awaited."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from serving.quality import MAX_TEXT_CHARACTERS, QualitySample

logger = logging.getLogger(__name__)

Labels = tuple[str, ...]


@dataclass
class Report:
    """What one process measured since its last report."""

    source: str
    counts: Counter[tuple[str, Labels]] = field(default_factory=Counter)
    observations: list[tuple[str, Labels, float]] = field(default_factory=list)
    gauges: dict[str, float] = field(default_factory=dict)
    samples: list[QualitySample] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Measurements held."""
        return len(self.counts) + len(self.observations) + len(self.samples)


class Reporter:
    """Collects measurements from any thread; ``run`` sends them. What cannot be kept or sent is counted under
    ``lost_metric`` and told in the next report that arrives."""

    def __init__(
        self,
        source: str,
        lost_metric: str,
        *,
        interval_s: float = 0.25,
        heartbeat_s: float = 5.0,
        send_timeout_s: float = 2.0,
        max_pending: int = 10_000,
        max_samples: int = 1_000,
    ) -> None:
        self._source = source
        self._lost_metric = lost_metric
        self._interval_s = interval_s
        self._heartbeat_s = heartbeat_s
        self._send_timeout_s = send_timeout_s
        self._max_pending = max_pending
        self._max_samples = max_samples
        self._lock = threading.Lock()
        self._pending = Report(source)
        self._gauges: dict[str, float] = {}
        self._gauges_changed = False

    def count(self, name: str, *labels: str, amount: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            if (name, labels) in self._pending.counts or self._has_room():
                self._pending.counts[name, labels] += amount

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add one value to a histogram."""
        with self._lock:
            if self._has_room():
                self._pending.observations.append((name, labels, value))

    def sample(self, sample: QualitySample) -> None:
        """Tell of one caption; its text is cut where it is longer than anyone needs."""
        if sample.text is not None and len(sample.text) > MAX_TEXT_CHARACTERS:
            sample = replace(sample, text=sample.text[:MAX_TEXT_CHARACTERS])
        with self._lock:
            if len(self._pending.samples) >= self._max_samples:
                self._lose(1)
            elif self._has_room():
                self._pending.samples.append(sample)

    def gauge(self, name: str, value: float) -> None:
        """Set this process's part of a gauge."""
        with self._lock:
            self._gauges[name] = value
            self._gauges_changed = True

    def forget(self) -> None:
        """Drop what was counted and observed so far."""
        with self._lock:
            self._pending = Report(self._source)

    async def run(self, send: Callable[[Report], Awaitable[None]]) -> None:
        """Send a report whenever there is something to tell, at most one at a time, until cancelled."""
        last_sent = float("-inf")
        while True:
            await asyncio.sleep(self._interval_s)
            due = time.monotonic() - last_sent >= self._heartbeat_s
            report = self._take(even_if_empty=due)
            if report is None:
                continue
            try:
                async with asyncio.timeout(self._send_timeout_s):
                    await send(report)
                last_sent = time.monotonic()
            except Exception as error:
                logger.debug("a report of %d measurements was lost: %r", report.size, error)
                told_before = report.counts.pop((self._lost_metric, ()), 0)
                with self._lock:
                    self._lose(report.size + told_before)

    def _take(self, *, even_if_empty: bool) -> Report | None:
        with self._lock:
            if not (self._pending.size or self._gauges_changed or even_if_empty):
                return None
            report, self._pending = self._pending, Report(self._source)
            report.gauges = dict(self._gauges)
            self._gauges_changed = False
            return report

    def _has_room(self) -> bool:
        if self._pending.size < self._max_pending:
            return True
        self._lose(1)
        return False

    def _lose(self, measurements: int) -> None:
        if measurements:
            self._pending.counts[self._lost_metric, ()] += measurements
