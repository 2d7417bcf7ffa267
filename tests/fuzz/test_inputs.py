"""Parsers of what a request holds: a value, or a refusal with its code."""

import base64
import json
import math
from typing import Any

from hypothesis import strategies as st

from models.card import CARD_FILE, read_card
from models.catalog import BUNDLED, find_by_id
from models.decoding import STRATEGIES, parse_decode
from models.errors import CheckpointError, ImageError, RequestError, UnknownNameError
from models.file_hashes import file_inside
from serving.image_inputs import decode_base64
from serving.multipart import parse_multipart
from serving.strict_json import parse_json
from tests.fuzz.support import fuzz, json_values

_PIECES = st.sampled_from(
    ["data:", "DATA:", ";base64", ",", "image/png", "=", "==", "%2B", "%", "-_", " ", "\r\n", "\0", "é"]
)
_BASE64 = st.lists(_PIECES | st.characters(categories=["L", "N"], max_codepoint=127), max_size=40).map("".join)


@fuzz(400, text=_BASE64 | st.text(max_size=60))
def test_base64(text: str) -> None:
    try:
        decode_base64(text)
    except ImageError as error:
        assert error.code in ("bad_base64", "empty")


@fuzz(200, data=st.binary(min_size=1, max_size=200), url_safe=st.booleans(), width=st.integers(1, 80))
def test_base64_of_any_kind_is_read(data: bytes, url_safe: bool, width: int) -> None:
    text = (base64.urlsafe_b64encode if url_safe else base64.b64encode)(data).decode()
    lines = "\n".join(text[start : start + width] for start in range(0, len(text), width))
    for given in (text, text.rstrip("="), lines, f"data:image/png;base64,{lines}", text.replace("/", "%2f")):
        assert decode_base64(given) == data


@fuzz(300, value=json_values())
def test_json_values(value: Any) -> None:
    """What is JSON is read as it was written; what only Python writes is refused."""
    text = json.dumps(value)
    try:
        found = parse_json(text.encode())
    except RequestError as error:
        assert error.code == "malformed_json"
        assert any(sign in text for sign in ("NaN", "Infinity")) or any(len(run) > 19 for run in _digits(text))
    else:
        assert found == json.loads(text)


def _digits(text: str) -> list[str]:
    return "".join(character if character.isdigit() else " " for character in text).split()


@fuzz(
    400, data=st.binary(max_size=60) | st.text('[]{}",:0123456789.eE+-truefalsnNaI\\u \n', max_size=60).map(str.encode)
)
def test_json_bytes(data: bytes) -> None:
    try:
        _finite(parse_json(data))
    except RequestError as error:
        assert error.code == "malformed_json"


def _finite(value: Any) -> None:
    if isinstance(value, float):
        assert math.isfinite(value)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(inner)


_LINES = st.sampled_from(
    [
        *(b"--x", b"--x--", b"\r\n", b"\n", b"\r", b"--", b"x", b": ", b"; ", b'"', b"\0", b"\xff"),
        *(b'Content-Disposition: form-data; name="images"', b"Content-Disposition: form-data; name*=utf-8''a%ff"),
        *(b'content-disposition: form-data; name=request; filename="a', b"\r\n\r\n", b"Content-Type: image/png"),
    ]
)
_TYPES = st.sampled_from(["x", '"x"', "", " ", "xx", "x; charset=utf-8", "x" * 300, "\u00e9", 'x; boundary="y"'])


@fuzz(
    400,
    boundary=_TYPES | st.text(st.characters(max_codepoint=255), max_size=9),
    body=st.lists(_LINES | st.binary(max_size=6), max_size=25).map(b"".join),
)
def test_multipart(boundary: str, body: bytes) -> None:
    try:
        parts = parse_multipart(f"multipart/form-data; boundary={boundary}", body, max_parts=3)
    except RequestError as error:
        assert error.code in ("malformed_body", "invalid_request")
    else:
        assert len(parts) <= 3
        assert all(part.data in body for part in parts)


_NAMES = st.sampled_from([*STRATEGIES, "options", "name", "guidance"]) | st.text(max_size=8)
_OPTIONS = st.sampled_from(
    ["max_tokens", "min_tokens", "beams", "temperature", "top_k", "top_p", "seed", "groups", "length_penalty"]
)


@fuzz(
    400,
    decode=json_values()
    | st.fixed_dictionaries(
        {},
        optional={
            "name": _NAMES | json_values(),
            "options": st.dictionaries(_OPTIONS | st.text(max_size=5), json_values(), max_size=4) | json_values(),
            "guidance": json_values(),
        },
    ),
)
def test_decode_options(decode: Any) -> None:
    """As they come from recipes and cards, where nothing has checked their types."""
    try:
        strategy = parse_decode(decode)
    except (RequestError, UnknownNameError) as error:
        assert error.code in ("invalid_request", "unsupported_option", "unknown_name")
    else:
        assert parse_decode(strategy.to_plain()) == strategy


_CARDS = [
    json.loads((BUNDLED / name / CARD_FILE).read_bytes()) for name in ("concise", "dial", "scorer", "descriptive")
]


@fuzz(
    200,
    card=st.sampled_from(_CARDS),
    changes=st.dictionaries(
        st.sampled_from(sorted({key for card in _CARDS for key in card})), json_values(), max_size=3
    ),
    place=st.floats(0, 1),
    piece=st.binary(max_size=4),
)
def test_cards(
    tmp_path_factory: Any, card: dict[str, Any], changes: dict[str, Any], place: float, piece: bytes
) -> None:
    data = json.dumps({**card, **changes}).encode("utf-8")
    at = int(place * len(data))
    folder = tmp_path_factory.mktemp("card")
    (folder / CARD_FILE).write_bytes(data[:at] + piece + data[at + len(piece) :])
    try:
        read = read_card(folder)
    except CheckpointError as error:
        assert error.code == "bad_card"
        assert len(error.detail) < 2000
    else:
        assert read.id is not None


_PATHS = st.lists(st.sampled_from(["..", ".", "/", "\\", "a", "\0", "concise", "\n", "~", "C:", "é"]), max_size=5).map(
    "".join
)


@fuzz(300, name=_PATHS | st.text(max_size=20))
def test_names_never_leave_their_folder(name: str) -> None:
    entry = find_by_id(name, (BUNDLED,))
    assert entry is None or (entry.path is not None and entry.path.parent == BUNDLED)
    try:
        inside = file_inside(BUNDLED, name)
    except CheckpointError as error:
        assert error.code == "bad_card"
    else:
        assert inside.parent == BUNDLED
