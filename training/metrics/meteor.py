"""METEOR of the COCO caption evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from models.errors import DataError
from training.metrics.interface import Definition, MetricInputs
from training.metrics.java import check_java, package_folder, run_java
from training.metrics.kinds import CorpusMetric

Counts = tuple[float, ...]
"""One line of METEOR's statistics: lengths of caption and reference, how many of their words are function words, then
for each matcher the matched content words of caption and reference and the matched function words of both, then chunks
and all matched words of caption and reference."""

_FIELDS = 23
_CHUNKS = 20
# METEOR 1.5's parameters for English, and its weights of exact, stem, synonym and paraphrase matches.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])


class Meteor(CorpusMetric[Counts]):
    """METEOR 1.5 (Denkowski and Lavie 2014) over all captions, as the COCO caption evaluation gives it.

    The jar inside pycocoevalcap matches the words; the score of its counts is computed here, so that captions need not
    be matched again for every sample of the images.
    """

    needs = frozenset({"references"})
    uses_java: ClassVar[bool] = True

    def __init__(self, options: Any = None) -> None:
        """Looks for Java and the jar.

        Raises:
            MissingDependencyError: one of them is absent.
        """
        super().__init__(options)
        folder = package_folder("pycocoevalcap.meteor.meteor")
        self._jar = folder / "meteor-1.5.jar"
        check_java("METEOR", [self._jar, folder / "data" / "paraphrase-en.gz"])

    def definitions(self) -> dict[str, Definition]:
        return {"meteor": Definition("METEOR 1.5 of all captions together, English, -norm; 0..1", 100.0)}

    def counts(self, inputs: MetricInputs) -> list[Counts]:
        assert inputs.tokenized is not None
        pairs = zip(inputs.tokenized.captions, inputs.tokenized.references, strict=True)
        lines = [_line(caption, references) for caption, references in pairs]
        arguments = ["-Xmx2G", "-jar", str(self._jar), "-", "-", "-stdio", "-l", "en", "-norm"]
        answers = run_java("METEOR", arguments, "".join(lines)).splitlines()
        counts = [tuple(map(float, answer.split())) for answer in answers]
        if len(counts) != len(lines) or any(len(count) != _FIELDS for count in counts):
            raise DataError("wrong_schema", f"METEOR gave {len(counts)} lines of counts for {len(lines)} captions")
        return [_without_chunks_of_perfect_matches(count) for count in counts]

    def combine(self, counts: Sequence[Counts]) -> dict[str, float]:
        return {"meteor": meteor_score(np.asarray(counts).sum(axis=0))}


def meteor_score(counts: np.ndarray) -> float:
    """METEOR of summed counts (23,)."""
    lengths, stages, chunks, matched = counts[:4], counts[4:_CHUNKS].reshape(4, 4), counts[_CHUNKS], counts[21:]
    # Columns of the stages: content words of caption and reference, function words of both.
    weighed = _WEIGHTS @ (_DELTA * stages[:, :2] + (1 - _DELTA) * stages[:, 2:])  # (2,): caption, reference
    if not weighed.all():
        return 0.0
    totals = _DELTA * (lengths[:2] - lengths[2:]) + (1 - _DELTA) * lengths[2:]
    precision, recall = weighed / totals
    mean = precision * recall / (_ALPHA * precision + (1 - _ALPHA) * recall)
    return float(mean * (1 - _GAMMA * (chunks / matched.mean()) ** _BETA))


def _without_chunks_of_perfect_matches(counts: Counts) -> Counts:
    """The counts as METEOR sums them: a caption equal to a reference is not fragmented, so its one chunk is none."""
    perfect = counts[_CHUNKS] == 1 and counts[21:] == counts[:2]
    return (*counts[:_CHUNKS], 0.0, *counts[21:]) if perfect else counts


def _line(caption: str, references: Sequence[str]) -> str:
    """The request for one caption; METEOR separates texts by three bars."""
    return " ||| ".join(["SCORE", *(text.replace("|||", " ") for text in (*references, caption))]) + "\n"
