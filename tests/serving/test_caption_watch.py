"""The watch: what is told, what is sampled, what is shed, and that a request waits for none of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from models.decoding import parse_decode
from models.interfaces import Caption
from serving import metrics
from serving.args import MonitorArgs
from serving.caption_watch import CaptionWatch, is_sampled
from serving.messages import CaptionedImage, CaptionJob, CaptionReply, Failure, SampledImage, Timing
from serving.points import Point
from serving.reports import Report, Reporter

OWN = parse_decode({"name": "beam", "options": {"beams": 2}})


def caption(text: str = "a dog", score: float | None = None) -> Caption:
    return Caption(text, -1.0, 3, "stop", score, "scorer" if score is not None else None)


def job(*images: bytes | Failure, **fields: Any) -> CaptionJob:
    return CaptionJob(**{"request_id": "r", "model": "m", "images": images, "strategy": OWN, **fields})


def reply(*results: CaptionedImage) -> CaptionReply:
    return CaptionReply(results, Timing())


def watch(*, scoring: bool = True, **args: Any) -> tuple[CaptionWatch, Reporter]:
    reporter = Reporter("test", metrics.REPORTS_LOST)
    return CaptionWatch(MonitorArgs(**args), {"m": OWN}, reporter, scoring=scoring), reporter


def told(reporter: Reporter) -> Report:
    report = reporter._take(even_if_empty=True)
    assert report is not None
    return report


def test_every_captioned_image_is_told_once_by_its_best_caption() -> None:
    seen, reporter = watch(sample_share=0)
    images = (b"1", Failure("empty", "no"), b"3", b"4")
    results = (
        CaptionedImage((caption("a dog", 0.9), caption("a cat", 0.7)), point=Point(expected_clip_score=1.0)),
        CaptionedImage(error=Failure("empty", "no")),
        CaptionedImage(error=Failure("truncated", "no")),
        CaptionedImage((caption("a bird"),)),
    )
    seen.see(job(*images), reply(*results))
    report = told(reporter)
    first, second = report.samples
    assert (first.model, first.text, first.clip_score, first.expected_clip_score) == ("m", "a dog", 0.9, 1.0)
    assert (second.text, second.clip_score, second.usual) == ("a bird", None, True)
    assert not report.counts


def test_decoding_that_a_request_chose_is_not_usual() -> None:
    seen, reporter = watch()
    seen.see(job(b"1", strategy=parse_decode({"name": "greedy"})), reply(CaptionedImage((caption(),))))
    assert [sample.usual for sample in told(reporter).samples] == [False]


def test_what_is_scored_for_its_request_is_not_scored_twice_and_nothing_without_a_scorer() -> None:
    scored, reporter = watch(sample_share=1)
    scored.see(job(b"1"), reply(CaptionedImage((caption(score=0.8),))))
    assert not scored._waiting and not told(reporter).counts
    without, reporter = watch(sample_share=1, scoring=False)
    without.see(job(b"1"), reply(CaptionedImage((caption(),))))
    assert not without._waiting and not told(reporter).counts


def test_the_share_is_kept_and_the_choice_is_the_requests() -> None:
    chosen = [is_sampled(f"request-{number}", number % 3, 0.1) for number in range(20_000)]
    assert 0.09 < sum(chosen) / len(chosen) < 0.11
    assert chosen == [is_sampled(f"request-{number}", number % 3, 0.1) for number in range(20_000)]
    assert all(is_sampled(str(number), 0, 1.0) and not is_sampled(str(number), 0, 0.0) for number in range(1000))
    assert [is_sampled("golden", index, 0.5) for index in range(8)] == GOLDEN
    wider = [is_sampled(f"request-{number}", number % 3, 0.2) for number in range(20_000)]
    assert all(more for less, more in zip(chosen, wider, strict=True) if less)


GOLDEN = [True, True, False, False, True, True, True, False]


@pytest.mark.parametrize(("bound", "kept"), [({"max_waiting_images": 3}, 3), ({"max_waiting_bytes": 200}, 2)])
def test_the_newest_are_shed_and_counted_when_there_is_no_room(bound: dict[str, int], kept: int) -> None:
    seen, reporter = watch(sample_share=1, **bound)
    images = [bytes([number]) * 100 for number in range(5)]
    seen.see(job(*images), reply(*[CaptionedImage((caption(),))] * 5))
    assert [image.data for image in seen._waiting] == images[:kept]
    counts = told(reporter).counts
    assert counts == {(metrics.SCORES_SAMPLED, ()): 5, (metrics.SCORES_SHED, ()): 5 - kept}


class Sender:
    """Keeps what is sent; fails and waits as told."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, images: Sequence[SampledImage]) -> None:
        self.sent.append([image.data for image in images])
        await self.gate.wait()
        if images and self.failures:
            raise self.failures.pop()


def with_running(scenario: Callable[[CaptionWatch, Sender, Reporter], Awaitable[None]], **args: Any) -> None:
    async def whole() -> None:
        seen, reporter = watch(sample_share=1, **args)
        send = Sender()
        task = asyncio.create_task(seen.run(send, pause_s=0))
        await until(lambda: send.sent == [[]])  # the scorer is told to load
        await scenario(seen, send, reporter)
        task.cancel()

    asyncio.run(whole())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def test_one_call_at_a_time_with_what_waits_by_then() -> None:
    async def scenario(seen: CaptionWatch, send: Sender, reporter: Reporter) -> None:
        send.gate.clear()
        for number in range(12):
            seen.see(job(bytes([number])), reply(CaptionedImage((caption(),))))
            if number == 0:
                await until(lambda: len(send.sent) == 2)
        send.gate.set()
        await until(lambda: len(send.sent) == 4)
        assert send.sent[1:] == [[b"\0"], [bytes([n]) for n in range(1, 9)], [bytes([n]) for n in range(9, 12)]]
        assert seen._waiting_bytes == 0
        assert (metrics.SCORES_SHED, ()) not in told(reporter).counts

    with_running(scenario)


def test_without_images_the_scorer_is_still_told_to_load() -> None:
    async def scenario() -> None:
        seen, reporter = watch(sample_share=1)
        send = Sender()
        task = asyncio.create_task(seen.run(send, nudge_after_s=0.01))
        await until(lambda: send.sent == [[], [], []])  # one that was restarted gets a model again
        task.cancel()
        assert not told(reporter).counts

    asyncio.run(scenario())


def test_a_scorer_that_fails_costs_its_images_and_no_more() -> None:
    async def scenario(seen: CaptionWatch, send: Sender, reporter: Reporter) -> None:
        send.failures.append(ConnectionError())
        seen.see(job(b"1", b"2"), reply(*[CaptionedImage((caption(),))] * 2))
        await until(lambda: not send.failures)
        seen.see(job(b"3"), reply(CaptionedImage((caption(),))))
        await until(lambda: send.sent[-1] == [b"3"])
        assert told(reporter).counts[metrics.SCORES_SHED, ()] == 2

    with_running(scenario)
