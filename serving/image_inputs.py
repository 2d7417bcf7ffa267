"""Images as they stand in a JSON body: base64 or data URI to bytes; URLs refused, or left to be fetched."""

import binascii
import re
from dataclasses import dataclass

import pybase64

from models.errors import ImageError
from serving.messages import Failure
from serving.schemas import ImageInput

_DATA_URI = re.compile(r"\s*data:([^,]{0,200}),", re.IGNORECASE)
_SPACE = b" \t\r\n\v\f"
_ESCAPES = {b"%2B": b"+", b"%2F": b"/", b"%3D": b"=", b"%2D": b"-", b"%5F": b"_", b"%0A": b"", b"%0D": b"", b"%20": b""}
"""All that base64 needs; a reader of any escape takes seconds and gigabytes for a body of nothing else."""


@dataclass(frozen=True)
class ImageUrl:
    """An image that is yet to be fetched; nothing of the URL has been checked."""

    url: str


GivenImage = bytes | Failure | ImageUrl


def image_bytes(given: ImageInput, *, urls: bool = False) -> GivenImage:
    """The encoded image, or why there is none, or where it is if ``urls`` are allowed. Nothing is opened or fetched."""
    if given.base64 is None:
        if urls and given.url is not None:
            return ImageUrl(given.url)
        return Failure("url_refused", "images by url are not allowed on this server: send the image itself")
    try:
        return decode_base64(given.base64)
    except ImageError as error:
        return Failure(error.code, error.detail)


def decode_base64(text: str) -> bytes:
    """The bytes of base64 or of a base64 data URI: line breaks, missing padding, the URL-safe alphabet and
    percent-escapes are tolerated; the media type of a data URI is ignored, since content decides.

    Raises:
        ImageError: ``bad_base64``, or ``empty``.
    """
    match = _DATA_URI.match(text)
    if match is not None:
        if not match[1].lower().rstrip().endswith(";base64"):
            raise ImageError("bad_base64", "a data URI must say ';base64' before its comma")
        text = text[match.end() :]
    elif text.lstrip()[:5].lower() == "data:":
        raise ImageError("bad_base64", "a data URI needs a comma between its media type and the base64 text")
    try:
        packed = text.encode("ascii")
    except UnicodeEncodeError:
        raise ImageError("bad_base64", "base64 has only ASCII letters") from None
    data = _strict(packed)
    if data is None:
        data = _strict(_plain(packed))
    if data is None:
        raise ImageError("bad_base64", "the text is not base64")
    if not data:
        raise ImageError("empty", "the base64 text is empty")
    return data


def _strict(packed: bytes) -> bytes | None:
    """What nearly everybody sends needs no more than this, at a tenth of the time of looking for what is to be
    tolerated."""
    try:
        return pybase64.b64decode(packed, validate=True)
    except binascii.Error:
        return None


def _plain(packed: bytes) -> bytes:
    """The same in the standard alphabet, padded, without escapes and white space."""
    if b"%" in packed:
        for escape, meant in _ESCAPES.items():
            packed = packed.replace(escape, meant).replace(escape.lower(), meant)
    packed = packed.translate(bytes.maketrans(b"-_", b"+/"), _SPACE).rstrip(b"=")
    return packed + b"=" * (-len(packed) % 4)
