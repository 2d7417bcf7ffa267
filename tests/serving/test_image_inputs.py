"""base64 in all its spellings, and URLs that nobody follows here."""

import base64
import time
from contextlib import suppress

import pytest

from models.errors import ImageError
from serving.image_inputs import ImageUrl, decode_base64, image_bytes
from serving.messages import Failure
from serving.schemas import ImageInput

DATA = bytes(range(256)) + b"\xfb\xff\xfe"
TEXT = base64.b64encode(DATA).decode()


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.rstrip("="),
        base64.encodebytes(DATA).decode(),
        "\r\n".join(TEXT[start : start + 76] for start in range(0, len(TEXT), 76)),
        base64.urlsafe_b64encode(DATA).decode(),
        TEXT.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
        base64.encodebytes(DATA).decode().replace("+", "%2b").replace("/", "%2f").replace("\n", "%0d%0a"),
        f"data:image/png;base64,{TEXT}",
        f"data:;base64,{TEXT}",
        f"data:image/jpg;charset=x;BASE64, {TEXT}",
        f"  DATA:text/plain;base64,{TEXT}\n",
    ],
)
def test_tolerated(text: str) -> None:
    assert decode_base64(text) == DATA


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("%%%%", "bad_base64"),
        ("abcde", "bad_base64"),
        ("ab=cd", "bad_base64"),
        ("café", "bad_base64"),
        ("data:image/png;base64" + TEXT, "bad_base64"),
        ("data:image/svg+xml,<svg/>", "bad_base64"),
        ("data:", "bad_base64"),
        ("", "empty"),
        (" \n", "empty"),
        ("====", "empty"),
        ("data:image/png;base64,", "empty"),
    ],
)
def test_refused(text: str, code: str) -> None:
    with pytest.raises(ImageError) as caught:
        decode_base64(text)
    assert caught.value.code == code
    assert "abcde" not in caught.value.detail


def test_an_image_is_its_bytes_or_a_failure() -> None:
    assert image_bytes(ImageInput(base64=TEXT)) == DATA
    assert image_bytes(ImageInput(base64="")) == Failure("empty", "the base64 text is empty")


@pytest.mark.parametrize("url", ["https://example.com/a.png", "", "file:///etc/hostname", "data:image/png;base64,AA=="])
def test_urls_are_refused_without_being_looked_at(url: str) -> None:
    refused = image_bytes(ImageInput(url=url))
    assert isinstance(refused, Failure)
    assert refused.code == "url_refused"


@pytest.mark.parametrize("url", ["https://example.com/a.png", "", "file:///etc/hostname"])
def test_urls_that_may_be_fetched_are_not_looked_at_either(url: str) -> None:
    assert image_bytes(ImageInput(url=url), urls=True) == ImageUrl(url)
    assert image_bytes(ImageInput(base64=TEXT), urls=True) == DATA


@pytest.mark.parametrize("text", ["%" * 4_000_000, "%41" * 2_000_000, " A" * 3_000_000, "A\r\n" * 2_000_000])
def test_a_body_of_escapes_or_spaces_costs_little(text: str) -> None:
    started = time.process_time()
    with suppress(ImageError):
        decode_base64(text)
    assert time.process_time() - started < 1
