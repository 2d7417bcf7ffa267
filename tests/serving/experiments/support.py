"""Outcomes to write down."""

from dataclasses import replace
from typing import Any

from serving.experiments.records import Outcome

_OUTCOME = Outcome(
    experiment="tone",
    arm="a",
    unit="u1",
    request_id="r1",
    index=0,
    model="fake",
    created_at_s=1000.0,
    sampled=True,
    clip_score=0.7,
    scorer="clip",
    words=5,
    latency_ms=20.0,
    caption="A dog runs on grass.",
)


def outcome(**changes: Any) -> Outcome:
    """An ordinary outcome, but for the changes."""
    return replace(_OUTCOME, **changes)
