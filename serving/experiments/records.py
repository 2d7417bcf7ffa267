"""What goes into the ledger: outcomes and votes, as plain values that travel between processes."""

import math
from dataclasses import dataclass
from typing import Literal

MAX_CAPTION_CHARS = 1000


def outcome_id(experiment: str, request_id: str, index: int) -> str:
    """The id of one image's outcome: sending it twice records it once."""
    return f"{experiment}/{request_id}/{index}"


@dataclass(frozen=True)
class Outcome:
    """What came of one image of a request that took part in an experiment."""

    experiment: str
    arm: str
    unit: str
    request_id: str
    index: int
    """Of the image in its request."""

    model: str
    created_at_s: float
    """Seconds since 1970."""

    sampled: bool
    """Whether it was to be scored: a score that is absent all the same is counted as missing."""

    clip_score: float | None = None
    scorer: str | None = None
    words: int | None = None
    latency_ms: float | None = None
    caption: str = ""
    error: str | None = None
    """The code, where there is no caption."""

    def __post_init__(self) -> None:
        for name in ("clip_score", "latency_ms"):  # NaN is no measurement, and no mean survives one
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                object.__setattr__(self, name, None)
        object.__setattr__(self, "caption", _storable(self.caption[:MAX_CAPTION_CHARS]))

    @property
    def id(self) -> str:
        """The key in the ledger."""
        return outcome_id(self.experiment, self.request_id, self.index)


@dataclass(frozen=True)
class Vote:
    """Somebody's opinion of one result; a later one on the same result takes its place."""

    experiment: str
    arm: str
    request_id: str
    index: int
    value: Literal[1, -1]
    created_at_s: float

    @property
    def outcome_id(self) -> str:
        """Of the outcome that it is about."""
        return outcome_id(self.experiment, self.request_id, self.index)


def _storable(text: str) -> str:
    """The text without what a database refuses: NUL and lone surrogates, made visible."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
