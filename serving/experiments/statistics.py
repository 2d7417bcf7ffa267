"""Results of an experiment: each arm by itself, and each pair of arms with a verdict that stands whenever one looks.

The unit (a user, say) is what is assigned, so it is what is counted: the score of a unit is the mean CLIPScore of its
images, and arms are compared by the means over their units.
"""

from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar, Literal

import numpy as np
from pydantic import ConfigDict

from models.text_stats import distinct_words
from serving.experiments.confidence import (
    ALPHA,
    Floats,
    Interval,
    Sample,
    confidence_sequence,
    mean_interval,
    pooled_sd,
    welch_interval,
)

MIN_UNITS = 100
"""Scored units that each arm of a pair needs before any verdict: the theory is one of many units."""

_DESCRIBED = ConfigDict(use_attribute_docstrings=True)  # over HTTP, the texts under the fields describe them

Verdict = Literal["a better", "b better", "undecided"]


@dataclass(frozen=True)
class ArmData:
    """What the ledger knows of one arm."""

    label: str
    images: int = 0
    units: int = 0
    unit_scores: Floats = field(default_factory=lambda: np.empty(0))
    """[U] mean CLIPScore of each unit that has one."""

    latencies_ms: Floats = field(default_factory=lambda: np.empty(0))
    """[N] of images without an error."""

    mean_words: float | None = None
    captions: tuple[str, ...] = ()
    """In an order that has nothing to do with what they say, so that the first n are a random sample."""

    votes_up: int = 0
    votes_down: int = 0
    missing: int = 0
    """Images that were to be scored, had no error, and have no score."""

    other_scorer: int = 0
    """Images left out because another scorer measured them: scores compare only under one."""

    errors: dict[str, int] = field(default_factory=dict)
    """Images without a caption, by code."""


@dataclass(frozen=True)
class ArmResult:
    """One arm by itself."""

    __pydantic_config__: ClassVar[ConfigDict] = _DESCRIBED

    label: str
    units: int
    """Whoever was assigned to the arm and sent an image."""

    images: int
    scored_units: int
    clip_score: float | None
    """Mean over the scored units of the mean CLIPScore of their images."""

    clip_score_interval: Interval | None
    """Of that mean; 95 %, for one look at a moment fixed beforehand."""

    words: float | None
    """Mean over the images with a caption."""

    latency_p50_ms: float | None
    """Of the whole request; over at most 10,000 images of the arm, chosen at random, as is the next."""

    latency_p95_ms: float | None
    distinct_words: int | None
    """Lexical diversity: different words in ``diversity_captions`` captions, chosen at random."""

    votes_up: int
    votes_down: int
    missing: int
    """Images that were to be scored, have a caption, and have no score."""

    other_scorer: int
    """Scored images left out because most were measured by another scorer."""

    errors: dict[str, int]
    """Images without a caption, by code."""


@dataclass(frozen=True)
class PairResult:
    """Two arms: ``effect`` is the mean CLIPScore of a less that of b."""

    __pydantic_config__: ClassVar[ConfigDict] = _DESCRIBED

    a: str
    b: str
    effect: float | None
    effect_sd: float | None
    """The effect in pooled standard deviations of the units' scores."""

    welch_interval: Interval | None
    """For one look at a moment fixed beforehand; 95 % for each pair by itself."""

    confidence_sequence: Interval | None
    """For looks at any time; 95 % for all pairs together."""

    verdict: Verdict
    """Whether the confidence sequence leaves out 0; ``undecided`` while an arm has fewer than ``min_units``."""


@dataclass(frozen=True)
class Results:
    """What can be said about an experiment now."""

    __pydantic_config__: ClassVar[ConfigDict] = _DESCRIBED

    arms: tuple[ArmResult, ...]
    """In the order of the definition."""

    pairs: tuple[PairResult, ...]
    """Every two arms, once."""

    diversity_captions: int
    """How many captions of each arm ``distinct_words`` counts in: as many as the arm with fewest has, of those
    that have any."""

    min_units: int = MIN_UNITS
    """Scored units that each arm of a pair needs before any verdict."""

    alpha: float = ALPHA
    """Chance of any wrong verdict, however often one looks."""

    pairwise_alpha: float = ALPHA
    """Of each pair's confidence sequence: ``alpha`` over the number of pairs (Bonferroni)."""


def results(arms: tuple[ArmData, ...]) -> Results:
    """The results of all arms."""
    pairs = list(combinations(arms, 2))
    alpha = ALPHA / max(1, len(pairs))
    equal = min((len(arm.captions) for arm in arms if arm.captions), default=0)
    return Results(
        arms=tuple(arm_result(arm, equal) for arm in arms),
        pairs=tuple(compare(a, b, alpha) for a, b in pairs),
        diversity_captions=equal,
        pairwise_alpha=alpha,
    )


def arm_result(arm: ArmData, captions: int) -> ArmResult:
    """One arm; its lexical diversity over the first ``captions`` of its captions."""
    sample = sample_of(arm.unit_scores)
    p50, p95 = np.percentile(arm.latencies_ms, (50, 95)).tolist() if arm.latencies_ms.size else (None, None)
    return ArmResult(
        label=arm.label,
        units=arm.units,
        images=arm.images,
        scored_units=sample.n,
        clip_score=sample.mean if sample.n else None,
        clip_score_interval=mean_interval(sample),
        words=arm.mean_words,
        latency_p50_ms=p50,
        latency_p95_ms=p95,
        distinct_words=distinct_words(arm.captions[:captions]) if arm.captions else None,
        votes_up=arm.votes_up,
        votes_down=arm.votes_down,
        missing=arm.missing,
        other_scorer=arm.other_scorer,
        errors=arm.errors,
    )


def compare(a: ArmData, b: ArmData, alpha: float) -> PairResult:
    """Arm a against arm b; ``alpha`` is the pair's share of the error."""
    sa, sb = sample_of(a.unit_scores), sample_of(b.unit_scores)
    effect = sa.mean - sb.mean if min(sa.n, sb.n) else None
    sd = pooled_sd(sa, sb)
    sequence = confidence_sequence(sa, sb, alpha)
    return PairResult(
        a=a.label,
        b=b.label,
        effect=effect,
        effect_sd=effect / sd if effect is not None and sd > 0 else None,
        welch_interval=welch_interval(sa, sb),
        confidence_sequence=sequence,
        verdict=verdict_of(sequence, min(sa.n, sb.n)),
    )


def verdict_of(sequence: Interval | None, fewest_units: int) -> Verdict:
    """What a confidence sequence of a - b says; nothing below MIN_UNITS."""
    if sequence is None or fewest_units < MIN_UNITS:
        return "undecided"
    low, high = sequence
    return "a better" if low > 0 else "b better" if high < 0 else "undecided"


def sample_of(scores: Floats) -> Sample:
    """Number, mean and variance of the scores [U] of units."""
    n = scores.size
    mean = float(scores.mean()) if n else 0.0
    variance = float(scores.var(ddof=1)) if n > 1 else 0.0
    rounding = (1e-9 * mean) ** 2  # equal scores must not scatter by the last bit of their sum
    return Sample(n, mean, variance if variance > rounding else 0.0)
