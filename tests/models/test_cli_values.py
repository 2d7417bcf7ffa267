from typing import Any

import pytest

from models.cli_values import decode_words, key_texts, key_values
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


def test_key_texts_are_not_read_as_json() -> None:
    assert key_texts(["model=1e3", "x=a=b", "empty="]) == {"model": "1e3", "x": "a=b", "empty": ""}


@pytest.mark.parametrize("words", [["beams"], ["=3"], ["a=1", "a=2"]])
def test_words_that_are_no_key_values(words: list[str]) -> None:
    for parse in (key_values, key_texts):
        with pytest.raises(RequestError):
            parse(words)


def test_decode_words() -> None:
    assert decode_words(None, []) is None
    assert decode_words("beam", ["beams=5"]) == {"name": "beam", "options": {"beams": 5}}
    assert decode_words(None, ["beams=5"]) == {"name": "beam", "options": {"beams": 5}}
    assert decode_words("greedy", [], 2.0) == {"name": "greedy", "options": {}, "guidance": 2.0}
    assert decode_words(None, [], 0.0) == {"guidance": 0.0}
