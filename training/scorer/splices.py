"""More texts to distil on: captions joined at a shared word, thinned, cut out and strung together.

The teacher knows what such a text means, so the small tower can learn from it although no picture shows it.
"""

import random
import re
from collections.abc import Sequence

_MAX_WORDS = 28
_SHORT_SPAN_WORDS = 8
_DROP_SHARE = 0.15
_AT_SPLICE, _AT_THIN, _AT_SPAN = 0.6, 0.75, 0.9
"""Cumulated shares: spliced, thinned, spans; the rest are two captions in one."""

_Index = dict[str, list[tuple[int, int]]]


def make_texts(captions: Sequence[str], count: int, seed: int) -> list[str]:
    """``count`` lower-case texts made from ``captions``; equal arguments give equal texts."""
    rng = random.Random(seed)
    words = [split for split in map(_words, captions) if len(split) > 3]
    index: _Index = {}
    for number, caption in enumerate(words):
        for position in range(1, len(caption) - 1):
            index.setdefault(caption[position], []).append((number, position))
    texts: list[str] = []
    while len(texts) < count:
        made = _make(words, index, rng)
        if 0 < len(made) <= _MAX_WORDS:
            texts.append(" ".join(made))
    return texts


def _make(words: list[list[str]], index: _Index, rng: random.Random) -> list[str]:
    first, kind = rng.choice(words), rng.random()
    if kind < _AT_SPLICE:
        return _splice(first, words, index, rng)
    if kind < _AT_THIN:
        return [word for word in first if rng.random() > _DROP_SHARE]
    if kind < _AT_SPAN:
        length = rng.randrange(1, min(_SHORT_SPAN_WORDS, len(first)))
        start = rng.randrange(len(first) - length + 1)
        return first[start : start + length]
    return [*first, *rng.choice((["and"], ["while"], [])), *rng.choice(words)]


def _splice(first: list[str], words: list[list[str]], index: _Index, rng: random.Random) -> list[str]:
    """The start of one caption up to a word, and what follows that word in another caption."""
    position = rng.randrange(1, len(first) - 1)
    other, at = rng.choice(index[first[position]])
    return first[:position] + words[other][at:]


def _words(text: str) -> list[str]:
    return re.sub(r"[^\w\s'\-]", " ", text.lower()).split()
