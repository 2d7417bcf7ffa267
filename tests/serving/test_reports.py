"""Reports: what is batched, what is lost, and that losing is told."""

import asyncio

from serving.quality import MAX_TEXT_CHARACTERS, QualitySample
from serving.reports import Report, Reporter

LOST = ("lost", ())


def collect(reporter: Reporter, sends: list[object], wanted: int = 1) -> list[Report]:
    """The first reports that arrive; ``sends`` tells, one by one, whether sending fails or hangs; then it works."""

    async def scenario() -> list[Report]:
        arrived: list[Report] = []
        outcomes = iter(sends)

        async def send(report: Report) -> None:
            outcome = next(outcomes, True)
            if isinstance(outcome, Exception):
                raise outcome
            if outcome == "hangs":
                await asyncio.sleep(60)
            arrived.append(report)

        task = asyncio.create_task(reporter.run(send))
        async with asyncio.timeout(20):
            while len(arrived) < wanted:
                await asyncio.sleep(0.005)
        task.cancel()
        return arrived

    return asyncio.run(scenario())


def test_measurements_travel_together() -> None:
    reporter = Reporter("r", "lost", interval_s=0.01)
    reporter.count("requests", "/a", "200")
    reporter.count("requests", "/a", "200", amount=2)
    reporter.observe("seconds", 0.5, "/a")
    reporter.gauge("queue", 3)
    [report] = collect(reporter, [])
    assert report.source == "r"
    assert report.counts == {("requests", ("/a", "200")): 3}
    assert report.observations == [("seconds", ("/a",), 0.5)]
    assert report.gauges == {"queue": 3}


def test_silence_is_broken_by_a_heartbeat_with_the_gauges() -> None:
    reporter = Reporter("r", "lost", interval_s=0.01, heartbeat_s=0.02)
    reporter.gauge("queue", 3)
    reports = collect(reporter, [], wanted=3)
    assert all(report.gauges == {"queue": 3} for report in reports)


def test_a_failed_or_hanging_report_is_lost_counted_and_told_later() -> None:
    reporter = Reporter("r", "lost", interval_s=0.01, send_timeout_s=0.02)
    for name in ("a", "b", "c"):
        reporter.count(name)
    [report] = collect(reporter, [ConnectionError(), "hangs"])
    assert report.counts == {LOST: 3}


def test_what_waits_is_bounded() -> None:
    reporter = Reporter("r", "lost", interval_s=0.01, max_pending=10)
    for number in range(100):
        reporter.observe("seconds", number)
    [report] = collect(reporter, [])
    assert [value for _, _, value in report.observations] == list(range(10))
    assert report.counts[LOST] == 90


def test_samples_of_captions_are_bounded_in_number_and_length() -> None:
    reporter = Reporter("r", "lost", interval_s=0.01, max_samples=2)
    for text in ("a", "b" * 10_000, "c"):
        reporter.sample(QualitySample("m", text))
    [report] = collect(reporter, [])
    assert [len(sample.text or "") for sample in report.samples] == [1, MAX_TEXT_CHARACTERS]
    assert report.counts == {LOST: 1}
    reporter.sample(QualitySample("m", "d"))
    [report] = collect(reporter, [ConnectionError()])
    assert report.counts == {LOST: 1}  # a lost sample is told like any other measurement


def test_forgetting() -> None:
    reporter = Reporter("r", "lost", interval_s=0.01, heartbeat_s=60)
    reporter.count("a")
    reporter.forget()
    assert collect(reporter, [])[0].size == 0
