"""The scorer of the sample: scores equal those of a request, bad pictures and failed loading are told, and when."""

import asyncio
from collections.abc import Sequence

import pytest
import torch
from PIL.Image import Image

from models.clip_scorer import ClipScorer, load_scorer
from models.errors import CheckpointError
from models.images import ImageLimits, load_image
from serving import metrics
from serving.messages import SampledImage
from serving.quality import QualitySample
from serving.reports import Report, Reporter
from serving.sample_scorer import SampleScorer
from tests.serving.support import png

LIMITS = ImageLimits(max_bytes=10_000)


def sampled(data: bytes, text: str) -> SampledImage:
    return SampledImage(data, QualitySample("m", text, None, 1.25, False))


def told(reporter: Reporter) -> Report:
    report = reporter._take(even_if_empty=True)
    assert report is not None
    return report


def test_scores_are_those_of_a_request(scorer: str) -> None:
    reporter = Reporter("test", metrics.REPORTS_LOST)
    sample = SampleScorer(lambda: load_scorer(scorer, device="cpu"), LIMITS, reporter)
    assert told(reporter).gauges == {metrics.SCORER_UP: 0}
    images = [png("red"), png("green", (80, 60))]
    asyncio.run(sample.score([sampled(images[0], "a red wall"), sampled(images[1], "grass")]))
    report = told(reporter)
    pictures: Sequence[Image] = [load_image(data).image for data in images]
    expected = load_scorer(scorer, device="cpu").score(pictures, [["a red wall"], ["grass"]])
    assert [found.clip_score for found in report.samples] == pytest.approx([score for (score,) in expected])
    assert {(found.model, found.text, found.expected_clip_score, found.usual) for found in report.samples} == {
        ("m", None, 1.25, False)
    }
    assert report.gauges == {metrics.SCORER_UP: 1}
    assert sample.failed_for_s is None
    sample.close()


def test_every_picture_has_a_pass_of_its_own(scorer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size of pass takes memory of its own for good: with sizes as they come, the process would grow for hours."""
    loaded, passes = load_scorer(scorer, device="cpu"), list[int]()
    project = loaded.project_images

    def seen(images: Sequence[Image]) -> torch.Tensor:
        passes.append(len(images))
        return project(images)

    monkeypatch.setattr(loaded, "project_images", seen)
    reporter = Reporter("test", metrics.REPORTS_LOST)
    sample = SampleScorer(lambda: loaded, LIMITS, reporter)
    for count in (3, 1, 8):
        asyncio.run(sample.score([sampled(png("red"), "a red wall")] * count))
    assert passes == [1] * 12
    assert len(told(reporter).samples) == 12
    sample.close()


def test_what_fails_on_the_way_tells_nothing(scorer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch then counts the whole call as shed: no picture may be told and shed."""
    loaded, scores = load_scorer(scorer, device="cpu"), [[[1.0]]]
    monkeypatch.setattr(loaded, "score", lambda images, captions: scores.pop())
    reporter = Reporter("test", metrics.REPORTS_LOST)
    sample = SampleScorer(lambda: loaded, LIMITS, reporter)
    with pytest.raises(IndexError):
        asyncio.run(sample.score([sampled(png("red"), "a red wall")] * 2))
    assert told(reporter).samples == []
    sample.close()


def test_a_picture_that_cannot_be_opened_is_shed_alone(scorer: str) -> None:
    reporter = Reporter("test", metrics.REPORTS_LOST)
    sample = SampleScorer(lambda: load_scorer(scorer, device="cpu"), LIMITS, reporter)
    asyncio.run(sample.score([sampled(b"x" * 20_000, "too large"), sampled(png(), "a red wall")]))
    report = told(reporter)
    assert len(report.samples) == 1
    assert report.counts == {(metrics.SCORES_SHED, ()): 1}
    sample.close()


def test_a_model_that_cannot_be_loaded_is_tried_once(caplog: pytest.LogCaptureFixture) -> None:
    tries = []

    def fail() -> ClipScorer:
        tries.append(1)
        raise CheckpointError("missing_file", "no scorer")

    reporter = Reporter("test", metrics.REPORTS_LOST)
    sample = SampleScorer(fail, LIMITS, reporter)
    for _ in range(3):
        with pytest.raises((CheckpointError, RuntimeError)):
            asyncio.run(sample.score(()))
    assert len(tries) == 1
    assert "no scorer" in caplog.text
    assert told(reporter).gauges == {metrics.SCORER_UP: 0}
    assert sample.failed_for_s is not None and sample.failed_for_s >= 0
    sample.close()
