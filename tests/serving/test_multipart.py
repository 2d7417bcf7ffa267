"""multipart bodies that are whole, cut, nameless or endless."""

import pytest

from models.errors import RequestError
from serving.multipart import Part, parse_multipart

TYPE = "multipart/form-data; boundary=xyz"


def body(*parts: tuple[str, bytes], end: bytes = b"--xyz--\r\n") -> bytes:
    return b"".join(b"--xyz\r\n" + head.encode() + b"\r\n\r\n" + data + b"\r\n" for head, data in parts) + end


def named(name: str, rest: str = "") -> str:
    return f'Content-Disposition: form-data; name="{name}"{rest}'


def test_parts_keep_their_bytes_whatever_their_headers() -> None:
    binary = bytes(range(256)) * 3
    given = body(
        (named("images", '; filename="a.png"') + "\r\nContent-Type: image/png", binary),
        (named("images", "; filename*=UTF-8''%E7%8C%AB.png"), binary),
        ("X-Other: 1\r\ncontent-disposition: form-data; name=images", b""),
        (named("request"), b"{}"),
    )
    names = ["images", "images", "images", "request"]
    contents = [binary, binary, b"", b"{}"]
    assert parse_multipart(TYPE, given, max_parts=4) == [
        Part(name, data) for name, data in zip(names, contents, strict=True)
    ]


@pytest.mark.parametrize(
    ("content_type", "given", "why"),
    [
        ("multipart/form-data", body((named("a"), b"1")), "names no boundary"),
        (TYPE, body((named("a"), b"1"), end=b""), "ends before its closing boundary"),
        (TYPE, body((named("a"), b"1"))[:20], "ends before its closing boundary"),
        (TYPE, b"", "ends before its closing boundary"),
        (TYPE, b"hello", "cannot be read"),
        (TYPE, body(("Content-Type: image/png", b"1")), "no name"),
    ],
)
def test_malformed_bodies(content_type: str, given: bytes, why: str) -> None:
    with pytest.raises(RequestError, match=why) as caught:
        parse_multipart(content_type, given, max_parts=4)
    assert caught.value.code == "malformed_body"


def test_too_many_parts() -> None:
    with pytest.raises(RequestError, match="more than 2 parts") as caught:
        parse_multipart(TYPE, body(*[(named("a"), b"1")] * 3), max_parts=2)
    assert caught.value.code == "invalid_request"
