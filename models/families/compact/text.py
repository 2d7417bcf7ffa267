"""Words from word pieces: the spacing that a reader expects."""

import re


def join_words(text: str) -> str:
    """Decoded pieces with hyphens and apostrophes joined to their words: "t - shirt" and "man ' s" read as written."""
    text = re.sub(r"(?<=\w) - (?=\w)", "-", text)
    text = re.sub(r"(?<=\w) ' (?=(?:s|t|re|ve|ll|d|m)\b)", "'", text)
    return " ".join(text.split())
