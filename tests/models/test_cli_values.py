from typing import Any

import pytest

from models.cli_values import decode_words, key_values
from models.errors import RequestError


@pytest.mark.parametrize(
    ("words", "parsed"),
    [
        ([], {}),
        (["beams=3", "temperature=0.7", "x=a=b"], {"beams": 3, "temperature": 0.7, "x": "a=b"}),
        (["flag=true", "none=null", "empty="], {"flag": True, "none": None, "empty": ""}),
    ],
)
def test_key_values(words: list[str], parsed: dict[str, Any]) -> None:
    assert key_values(words) == parsed


@pytest.mark.parametrize("words", [["beams"], ["=3"], ["a=1", "a=2"]])
def test_words_that_are_no_key_values(words: list[str]) -> None:
    with pytest.raises(RequestError):
        key_values(words)


def test_decode_words() -> None:
    assert decode_words(None, []) is None
    assert decode_words("beam", ["beams=5"]) == {"name": "beam", "options": {"beams": 5}}
    assert decode_words(None, ["beams=5"]) == {"name": "beam", "options": {"beams": 5}}
