"""Outcomes hold only what every database takes."""

import math

import pytest

from serving.experiments.records import MAX_CAPTION_CHARS, Vote
from tests.serving.experiments.support import outcome


def test_an_outcome_and_a_vote_on_it_have_one_id() -> None:
    recorded = outcome(request_id="a/b", index=3)
    vote = Vote("tone", "a", "a/b", 3, 1, 0.0)
    assert recorded.id == vote.outcome_id == "tone/a/b/3"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_measurement(value: float) -> None:
    recorded = outcome(clip_score=value, latency_ms=value)
    assert (recorded.clip_score, recorded.latency_ms) == (None, None)


def test_captions_are_cut_and_made_storable() -> None:
    assert outcome(caption="a\0b\ud800c").caption == "a\\0b\\ud800c"
    assert len(outcome(caption="x" * 5000).caption) == MAX_CAPTION_CHARS
