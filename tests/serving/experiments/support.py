"""Outcomes to write down, and a ledger in this process."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from serving.experiments.definition import Arm, Experiment
from serving.experiments.ledger import Ledger
from serving.experiments.records import Outcome, Vote
from serving.experiments.statistics import Results, results

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


class LocalLedger:
    """The ledger as routes see it, in this process."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def record(self, outcomes: Sequence[Outcome]) -> Collection[str]:
        return self.ledger.record(outcomes)

    async def vote(self, vote: Vote) -> None:
        self.ledger.vote(vote)

    async def results(self, experiment: str, labels: Sequence[str]) -> Results:
        return results(self.ledger.arm_data(experiment, labels))


def experiment(*labels: str, name: str = "tone", **options: Any) -> Experiment:
    """Arms that differ in nothing."""
    return Experiment(name=name, arms=tuple(Arm(label=label) for label in labels or ("a", "b")), **options)
