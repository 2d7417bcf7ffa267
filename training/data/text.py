"""Cleaning of human captions, the same for every data format."""

import re
import unicodedata

# Everything that Python or a line-based tool such as the Java PTB tokenizer takes for the end of a line, and NUL.
_BREAKS = re.compile(r"[\x00\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_SURROGATES = re.compile(r"[\ud800-\udfff]")


def one_line(text: str) -> str:
    """The text in NFC on one line: runs of Unicode line breaks become a space, lone surrogates U+FFFD."""
    return unicodedata.normalize("NFC", _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", _BREAKS.sub(" ", text)))


def clean_caption(text: str) -> str:
    """The caption on one line, in NFC, without outer white space; case and punctuation stay as written."""
    return one_line(text).strip()
