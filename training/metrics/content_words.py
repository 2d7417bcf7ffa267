"""Content words of captions that people used of the same picture: a proxy for hallucination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import CorpusMetric
from training.metrics.stop_words import STOP_WORDS

Counts = tuple[int, int]
"""Of one caption: its content words, and how many of them are in a reference."""

_IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "people": "person",
    "feet": "foot",
    "teeth": "tooth",
    "geese": "goose",
    "mice": "mouse",
    "leaves": "leaf",
    "wolves": "wolf",
    "knives": "knife",
    "shelves": "shelf",
    "scarves": "scarf",
    "buses": "bus",
}
_HISSING = ("sses", "shes", "ches", "xes")
_NO_PLURAL = ("ss", "us", "is")
_SHORTEST_PLURAL = 4


class ContentWords(CorpusMetric[Counts]):
    """How many different content words a caption has, and how many of them any of its image's references has."""

    needs = frozenset({"references"})

    def definitions(self) -> dict[str, Definition]:
        what = "different content words of a caption (no stop words, plurals folded)"
        return {
            "content_words": Definition(f"mean number of {what}", over_images="mean"),
            "content_matches": Definition(f"mean number of {what} that are in a reference", over_images="mean"),
            "content_precision": Definition(
                f"share, over all captions, of {what} that are in a reference; 0..1", 100.0
            ),
        }

    def counts(self, inputs: MetricInputs) -> list[Counts]:
        assert inputs.tokenized is not None
        counts = []
        for caption, references in zip(inputs.tokenized.captions, inputs.tokenized.references, strict=True):
            said = content_words(caption)
            counts.append((len(said), len(said & content_words(" ".join(references)))))
        return counts

    def combine(self, counts: Sequence[Counts]) -> dict[str, float]:
        said, matched = (sum(of) for of in zip(*counts, strict=True))
        return {
            "content_words": said / len(counts),
            "content_matches": matched / len(counts),
            "content_precision": matched / said if said else 0.0,
        }

    def per_image(self, inputs: MetricInputs) -> Mapping[str, Sequence[float]]:
        counts = self.counts(inputs)
        return {
            "content_words": [float(said) for said, _ in counts],
            "content_matches": [float(matched) for _, matched in counts],
        }


def content_words(tokens: str) -> frozenset[str]:
    """The different content words in space-joined, lower-cased tokens, each as ``singular`` gives it."""
    words = (word for word in tokens.split() if word not in STOP_WORDS and any(map(str.isalnum, word)))
    return frozenset(map(singular, words))


def singular(word: str) -> str:
    """A word without the ending of its plural, or of a verb's third person; the first rule that fits decides.

    1. irregular plurals by a table; 2. fewer than four letters: as it is; 3. -ies, and -ie of five letters or more:
    -y; 4. -sses, -shes, -ches, -xes: without -es; 5. -s but not -ss, -us, -is: without -s.
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) < _SHORTEST_PLURAL:
        return word
    if len(word) > _SHORTEST_PLURAL and word.endswith(("ies", "ie")):
        return word[: word.rindex("ie")] + "y"
    if word.endswith(_HISSING):
        return word[:-2]
    if word.endswith("s") and not word.endswith(_NO_PLURAL):
        return word[:-1]
    return word
