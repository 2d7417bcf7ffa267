"""What became of the images of a job within the engine, and where their time went."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.batches import Outcome, stages_ms
from serving.messages import Failure, Timing


@dataclass(frozen=True)
class Answer:
    """What became of one image."""

    outcome: Outcome = Outcome()
    wait_s: float = 0.0
    notes: tuple[str, ...] = ()
    error: Failure | None = None


def timing(answers: Sequence[Answer]) -> Timing:
    """Where the time of a job went: what its images shared counts once."""
    stages = stages_ms([answer.outcome.timing for answer in answers])
    waited_s = max((answer.wait_s for answer in answers), default=0.0)
    return Timing(queue=waited_s * 1000, encode=stages.encode, decode=stages.decode, score=stages.score)
