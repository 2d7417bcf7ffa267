"""Requests that take part."""

from typing import Any

import pytest

from models.decoding import parse_decode
from models.errors import RequestError, UnknownNameError
from models.interfaces import Caption
from serving.experiments.definition import Arm, Experiment
from serving.experiments.participation import Participation, take_part
from serving.messages import CaptionedImage, CaptionJob, CaptionReply, Failure, Timing
from serving.schemas import CaptionOptions, DecodeInput
from tests.serving.experiments.support import experiment

TONE = Experiment(
    name="tone",
    arms=(
        Arm(label="short"),
        Arm(label="long", model="dial", descriptiveness=0.8),
        Arm(label="mixed", mix={"smile": 1}),
    ),
)


def joined(unit: str, **asked: Any) -> tuple[Participation, CaptionOptions]:
    participation, options = take_part((TONE,), CaptionOptions(experiment="tone", unit=unit, **asked), "r1")
    assert participation is not None
    return participation, options


def test_who_does_not_ask_takes_no_part() -> None:
    asked = CaptionOptions(model="x", unit="u")
    assert take_part((TONE,), asked, "r1") == (None, asked)


def test_the_request_becomes_what_its_arm_says() -> None:
    seen = {}
    for number in range(50):
        participation, options = joined(f"u{number}", num_captions=3, decode=DecodeInput(name="greedy"))
        seen[participation.arm.label] = (options.model, options.descriptiveness, options.mix)
        assert (options.num_captions, options.decode) == (3, DecodeInput(name="greedy"))
    assert seen == {"short": (None, None, None), "long": ("dial", 0.8, None), "mixed": (None, None, {"smile": 1})}


@pytest.mark.parametrize(
    "given", [{"model": "dial"}, {"descriptiveness": 0.5}, {"mix": {"smile": 1.0}}, {"target_words": 9}]
)
def test_what_any_arm_decides_no_request_may_ask(given: dict[str, Any]) -> None:
    for unit in map(str, range(8)):  # of every arm
        with pytest.raises(RequestError, match=f"{next(iter(given))}: experiment 'tone' decides it"):
            joined(unit, **given)


def test_without_a_unit_or_an_experiment() -> None:
    with pytest.raises(RequestError, match="unit: experiment 'tone' needs one"):
        take_part((TONE,), CaptionOptions(experiment="tone"), "r1")
    with pytest.raises(UnknownNameError, match="no experiment 'other'"):
        take_part((TONE,), CaptionOptions(experiment="other", unit="u"), "r1")


@pytest.mark.parametrize(("share", "asked", "given"), [(1, False, None), (0, False, False), (1, True, True)])
def test_the_sample_is_scored_whatever_the_request_says(share: float, asked: bool, given: bool | None) -> None:
    options = CaptionOptions(experiment="tone", unit="u", score=asked)
    assert take_part((experiment(score_share=share),), options, "r1")[1].score is given


def test_what_would_hold_in_some_arms_only_holds_in_none() -> None:
    with pytest.raises(RequestError, match="min_clip_score: not in an experiment"):
        joined("u", min_clip_score=0.5)
    reranking = experiment(score_share=0).model_copy(
        update={"arms": (Arm(label="a"), Arm(label="b", decode=DecodeInput(rerank="clip_score")))}
    )
    for unit in map(str, range(8)):  # of both arms
        options = CaptionOptions(experiment="tone", unit=unit, score=False)
        assert take_part((reranking,), options, "r1")[1].score is None


def test_outcomes() -> None:
    best = Caption("A dog runs.", -0.5, 4, "stop", clip_score=0.7, scorer="clip")
    job = CaptionJob("r1", "fake", (b"", b""), parse_decode(None))
    reply = CaptionReply((CaptionedImage((best, best)), CaptionedImage(error=Failure("truncated", ""))), Timing())
    one = experiment()
    good, bad = Participation(one, one.arms[1], "u", "r1").outcomes(job, reply, 0.25)
    assert (good.id, good.arm, good.unit, good.model, good.sampled) == ("tone/r1/0", "b", "u", "fake", True)
    assert (good.clip_score, good.scorer, good.words, good.latency_ms) == (0.7, "clip", 3, 250)
    assert (good.caption, good.error) == ("A dog runs.", None)
    assert (bad.id, bad.error, bad.latency_ms, bad.clip_score, bad.words) == (
        "tone/r1/1",
        "truncated",
        None,
        None,
        None,
    )
    none = experiment(score_share=0)
    [unsampled, _] = Participation(none, none.arms[0], "u", "r1").outcomes(job, reply, 0.25)
    assert (unsampled.sampled, unsampled.clip_score, unsampled.scorer) == (False, None, None)


def test_a_request_that_failed_as_a_whole_is_told_of_too() -> None:
    one = experiment()
    failed = Participation(one, one.arms[0], "u", "r1").failures("fake", 2, "deadline_exceeded")
    assert [(each.id, each.error, each.caption) for each in failed] == [
        ("tone/r1/0", "deadline_exceeded", ""),
        ("tone/r1/1", "deadline_exceeded", ""),
    ]
