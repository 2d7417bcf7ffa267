"""What is JSON and what only looks like it."""

import pytest

from models.errors import RequestError
from serving.strict_json import parse_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": [1, -2.5e3, true, null, "\xc3\xa9"]}', {"a": [1, -2500.0, True, None, "é"]}),
        (b"9223372036854775807", 2**63 - 1),
        ('"text"', "text"),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
    ],
)
def test_json(text: bytes | str, value: object) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1, column 2"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"NaN", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "too large"),
        (b'{"a": 1, "a": 2}', "names a key twice"),
        (b"1" * 5000, "an integer of 5000 digits"),
        (b"-" + b"1" * 20, "an integer of 20 digits"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'{"a": 1} x', "Extra data"),
    ],
)
def test_malformed(text: bytes, why: str) -> None:
    with pytest.raises(RequestError, match=why) as caught:
        parse_json(text)
    assert caught.value.code == "malformed_json"
    assert len(caught.value.detail) < 120


def test_the_detail_says_where_the_text_came_from() -> None:
    with pytest.raises(RequestError, match="the query parameter decode is not JSON"):
        parse_json("{", "the query parameter decode")


def test_millions_of_values_are_refused_before_they_are_made() -> None:
    with pytest.raises(RequestError, match="more than 200000 commas") as caught:
        parse_json(b"[" + b"[]," * 300_000 + b"[]]")
    assert caught.value.code == "malformed_json"
    assert len(parse_json(b"[" + b"1," * 199_999 + b"1]")) == 200_000


@pytest.mark.parametrize(("text", "value"), [("3.0", 3), ("-1e2", -100), ("-0.0", 0), ("1e308", 1e308), ("2.5", 2.5)])
def test_a_whole_number_is_an_integer_however_it_is_written(text: str, value: float) -> None:
    found = parse_json(text)
    assert found == value
    assert isinstance(found, int) == (abs(value) < 2**53 and value == int(value))
