"""Damage, rare kinds and false claims are told apart."""

import struct

import pytest
from PIL import Image

from models.errors import ImageError
from models.images import load_image
from tests.support import CASES, encoded

_JPEG = encoded(Image.new("RGB", (16, 16)), "JPEG")
_FRAME = _JPEG.index(b"\xff\xc0")


def _refused(data: bytes) -> ImageError:
    with pytest.raises(ImageError) as caught:
        load_image(data)
    return caught.value


def _tiff(bits: int, photometric: int = 1, compression: int = 1) -> bytes:
    values = {256: 1, 257: 1, 258: bits, 259: compression, 262: photometric, 273: 8, 277: 1, 278: 1, 279: 8}
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in values.items())
    return b"II*\0" + struct.pack("<IH", 8, len(values)) + entries + bytes(4)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (_JPEG[: _FRAME + 4] + b"\x0c" + _JPEG[_FRAME + 5 :], "12-bit"),
        (_JPEG[: _FRAME + 9] + b"\2" + _JPEG[_FRAME + 10 :], "2-layer"),
        (_tiff(64), "unknown pixel mode"),
        (_tiff(8, photometric=32803), "unknown pixel mode"),
        (_tiff(8, compression=34712), "34712"),
        (b"BM" + struct.pack("<IHHIIiiHHIIiiII", 99, 0, 0, 54, 40, 4, 4, 1, 0, 4, 0, 0, 0, 0, 0) + _JPEG, "depth"),
    ],
    ids=["jpeg-12-bit", "jpeg-2-layers", "tiff-64-bit", "tiff-raw-sensor", "tiff-compression", "bmp-jpeg"],
)
def test_a_whole_picture_of_a_kind_that_is_not_read(data: bytes, why: str) -> None:
    error = _refused(data)
    assert error.code == "unsupported_format"
    assert why in error.detail and "save it as PNG" in error.detail


@pytest.mark.parametrize("data", [_JPEG[:100], _JPEG[:300], _tiff(8)[:40]], ids=["jpeg", "tables", "tiff"])
def test_a_cut_header_is_damage(data: bytes) -> None:
    assert _refused(data).code == "truncated"


@pytest.mark.parametrize("name", ["plain.avif", "plain.heic"])
def test_a_size_that_the_decoder_itself_refuses_is_too_large(name: str) -> None:
    if name.endswith("heic"):
        pytest.importorskip("pillow_heif", reason="the extra limner[heif] is not installed")
    data = (CASES / "images" / name).read_bytes()
    place = data.index(b"ispe") + 8
    assert _refused(data[:place] + struct.pack(">II", 65_000, 65_000) + data[place + 8 :]).code == "too_large"
