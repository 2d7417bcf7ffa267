"""Statistics of captions that training and serving both report: words, distinct words, repetition.

Definitions after the SMILE paper, whose figures they reproduce: a caption is split on whitespace, punctuation is
stripped from the ends of each token, and a token of punctuation alone is no word.
"""

import unicodedata
from collections.abc import Iterable
from string import punctuation

_ASCII_PUNCTUATION = frozenset(punctuation)


def words(text: str) -> list[str]:
    """The words of a text in order, in their own case, in Unicode form NFC; "don't" and "black-and-white" are one."""
    tokens = (_stripped(token) for token in unicodedata.normalize("NFC", text).split())
    return [token for token in tokens if token]


def word_count(text: str) -> int:
    """How many words a text has: caption length."""
    return len(words(text))


def distinct_words(texts: Iterable[str]) -> int:
    """How many different words, case told apart, all the texts have: lexical diversity, which papers give in thousands.

    It grows with the number and the length of the texts: compare it only between equally many.
    """
    return len({word for text in texts for word in words(text)})


def repeats_ngram(text: str, n: int = 3) -> bool:
    """Whether some ``n`` words in a row come twice in the text, whatever their case; the two may overlap."""
    return repeated_share(text, n) > 0


def repeated_share(text: str, n: int = 3) -> float:
    """Share, 0 to 1, of the runs of ``n`` words that stand in the text already, whatever their case."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    folded = [word.casefold() for word in words(text)]
    ngrams = [tuple(folded[start : start + n]) for start in range(len(folded) - n + 1)]
    return 1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0


def repetition_ratio(texts: Iterable[str], n: int = 3) -> float:
    """Share of the texts, 0 to 1, that ``repeats_ngram``; 0 where there are none."""
    repeats = [repeats_ngram(text, n) for text in texts]
    return sum(repeats) / len(repeats) if repeats else 0.0


def without_repeats(text: str) -> str:
    """The text without words that equal the one before them, its words split on whitespace and joined by one space.

    What Lindh et al. (2018) do to captions before they measure them: "a man man in a hat" is "a man in a hat".
    """
    tokens = text.split()
    return " ".join(token for before, token in zip([None, *tokens], tokens, strict=False) if token != before)


def _stripped(token: str) -> str:
    start, end = 0, len(token)
    while start < end and _is_punctuation(token[start]):
        start += 1
    while end > start and _is_punctuation(token[end - 1]):
        end -= 1
    return token[start:end]


def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")
