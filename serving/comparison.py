"""What a comparison on picture files found: each arm by itself, and each pair of arms with a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from models.paired_tests import flip_means, holm, mean_interval
from models.text_stats import repeats_ngram, words
from serving.messages import CaptionedImage

ALPHA = 0.05

Interval = tuple[float, float]
Verdict = Literal["a better", "b better", "undecided"]


@dataclass(frozen=True)
class ArmSummary:
    """One arm over all pictures that could be read."""

    clip_score: float
    interval: Interval | None
    """95 %, over pictures; None for fewer than two."""
    words: float
    distinct_words: int
    repetition: float
    """Share of captions with a run of three words that comes twice."""
    cut: float
    """Share of captions that the token limit cut."""


@dataclass(frozen=True)
class PairSummary:
    """Two arms on the same pictures; ``a`` and ``b`` are their places among the arms."""

    a: int
    b: int
    difference: float
    """Mean CLIPScore of b less that of a."""
    interval: Interval | None
    """95 %, of this pair by itself; None for fewer than two pictures."""
    p: float
    """Of the sign-flip test, corrected for the number of pairs."""
    a_higher: int
    b_higher: int
    equal: int
    verdict: Verdict


@dataclass
class _Tally:
    scores: list[float] = field(default_factory=list)
    word_counts: list[int] = field(default_factory=list)
    vocabulary: set[str] = field(default_factory=set)
    repeats: int = 0
    cut: int = 0


class Comparison:
    """Adds up pictures; keeps numbers, not captions."""

    def __init__(self, arms: int) -> None:
        self._tallies = [_Tally() for _ in range(arms)]

    @property
    def pictures(self) -> int:
        """How many pictures every arm captioned."""
        return len(self._tallies[0].scores)

    def add(self, results: Sequence[CaptionedImage]) -> None:
        """One picture, as each arm captioned it; left out where one of them failed, so that all stay paired."""
        if any(result.error is not None for result in results):
            return
        for tally, result in zip(self._tallies, results, strict=True):
            caption = result.captions[0]
            assert caption.clip_score is not None
            said = words(caption.text)
            tally.scores.append(caption.clip_score)
            tally.word_counts.append(len(said))
            tally.vocabulary.update(said)
            tally.repeats += repeats_ngram(caption.text)
            tally.cut += caption.finish_reason == "length"

    def arms(self) -> list[ArmSummary]:
        """Each arm, in order; at least one picture must be there."""
        return [
            ArmSummary(
                clip_score=float(np.mean(tally.scores)),
                interval=mean_interval(np.array(tally.scores)),
                words=float(np.mean(tally.word_counts)),
                distinct_words=len(tally.vocabulary),
                repetition=tally.repeats / self.pictures,
                cut=tally.cut / self.pictures,
            )
            for tally in self._tallies
        ]

    def pairs(self) -> list[PairSummary]:
        """Each pair of arms, in order; at least one picture must be there."""
        scores = [np.array(tally.scores) for tally in self._tallies]
        pairs = list(combinations(range(len(scores)), 2))
        corrected = holm([flip_means(scores[a], scores[b]) for a, b in pairs])
        return [_pair(a, b, scores[b] - scores[a], p) for (a, b), p in zip(pairs, corrected, strict=True)]


def _pair(a: int, b: int, differences: np.ndarray, p: float) -> PairSummary:
    mean = float(differences.mean())
    better: Verdict = "b better" if mean > 0 else "a better"
    return PairSummary(
        a=a,
        b=b,
        difference=mean,
        interval=mean_interval(differences),
        p=p,
        a_higher=int((differences < 0).sum()),
        b_higher=int((differences > 0).sum()),
        equal=int((differences == 0).sum()),
        verdict=better if p < ALPHA else "undecided",
    )
