"""Every pixel mode that the formats can deliver, as 8-bit sRGB."""

import struct
import time
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from models.images import ImageLimits, load_image
from tests.support import CASES, encoded

_RED = (220, 30, 30)


def _pixels(data: bytes) -> list[tuple[int, ...]]:
    return [tuple(pixel) for pixel in np.asarray(load_image(data).image).reshape(-1, 3).tolist()]


def _wide_gamut_profile() -> bytes:
    with Image.open(CASES / "images/icc_wide_gamut.png") as picture:
        return bytes(picture.info["icc_profile"])


def _close(data: bytes, expected: tuple[int, int, int], tolerance: int) -> bool:
    return all(abs(a - b) <= tolerance for pixel in _pixels(data) for a, b in zip(pixel, expected, strict=True))


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _png_row(width: int, depth: int, colour_type: int, values: bytes, transparent: bytes = b"") -> bytes:
    """A PNG of one row, also in kinds that Pillow does not write."""
    header = struct.pack(">IIBBBBB", width, 1, depth, colour_type, 0, 0, 0)
    key = _chunk(b"tRNS", transparent) if transparent else b""
    rows = _chunk(b"IDAT", zlib.compress(b"\0" + values))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + key + rows + _chunk(b"IEND", b"")


def _tiff_12_bit() -> bytes:
    """Two pixels of 12 bits, 0x800 and 0xfff."""
    tags = [(256, 2), (257, 1), (258, 12), (259, 1), (262, 1), (273, 122), (277, 1), (278, 1), (279, 3)]
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + b"\x80\x0f\xff"


@pytest.mark.parametrize(
    ("png", "expected"),
    [
        (_png_row(1, 16, 2, struct.pack(">3H", 0x8000, 0x1000, 0xFFFF)), (128, 16, 255)),
        (_png_row(1, 16, 6, struct.pack(">4H", 0x8000, 0, 0, 0x8000)), (191, 127, 127)),
        (_png_row(1, 16, 4, struct.pack(">2H", 0, 0x8000)), (127, 127, 127)),
        (_png_row(1, 16, 0, struct.pack(">H", 0x8000)), (128, 128, 128)),
        (_png_row(1, 16, 2, bytes(6), transparent=bytes(6)), (255, 255, 255)),
        (_png_row(1, 16, 2, b"\x40\0" * 3, transparent=b"\x40\0" * 3), (255, 255, 255)),
        (_png_row(1, 16, 0, b"\0\x64", transparent=b"\0\x64"), (255, 255, 255)),
        (_png_row(1, 8, 0, b"\x10", transparent=b"\0\x10"), (255, 255, 255)),
        (_png_row(1, 8, 4, b"\0\0"), (255, 255, 255)),
        (_png_row(1, 1, 0, b"\0", transparent=b"\0\0"), (255, 255, 255)),
    ],
    ids=["rgb", "rgba", "la", "gray", "rgb-key", "rgb-key-high", "gray-key", "gray8-key", "la8", "bilevel-key"],
)
def test_png_depths_and_transparency(png: bytes, expected: tuple[int, int, int]) -> None:
    assert _pixels(png) == [expected]


@pytest.mark.parametrize("compression", ["raw", "jpeg", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_tiff_compressions(compression: str) -> None:
    assert _close(encoded(Image.new("RGB", (16, 16), _RED), "TIFF", compression=compression), _RED, 2)


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr"])
def test_tiff_colour_spaces(mode: str) -> None:
    assert _close(encoded(Image.new("RGB", (16, 16), _RED).convert(mode), "TIFF"), _RED, 4)


def test_tiff_in_lab() -> None:
    srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    picture = ImageCms.profileToProfile(Image.new("RGB", (4, 4), _RED), srgb, lab, outputMode="LAB")
    assert picture is not None
    assert _close(encoded(picture, "TIFF"), _RED, 4)


def test_tiff_of_one_and_of_twelve_bits() -> None:
    bilevel = Image.new("1", (2, 1))
    bilevel.putpixel((1, 0), 1)
    assert _pixels(encoded(bilevel, "TIFF", compression="group4")) == [(0, 0, 0), (255, 255, 255)]
    assert _pixels(_tiff_12_bit()) == [(128, 128, 128), (255, 255, 255)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 0.5, 1]], np.float32), [0, 128, 255]),
        (np.array([[280, 295, 310]], np.float32), [0, 128, 255]),
        (np.array([[-3e38, 0, 3e38]], np.float32), [0, 128, 255]),
        (np.array([[np.nan, 0, 1, np.inf, -np.inf]], np.float32), [0, 0, 255, 255, 0]),
        (np.array([[np.nan, np.inf]], np.float32), [0, 255]),
        (np.array([[0x7F800001, 0x3F800000]], np.uint32).view(np.float32), [0, 255]),  # a signalling NaN
        (np.array([[1000, 1000]], np.float32), [128, 128]),
        (np.array([[0, 32768, 65535]], np.int32), [0, 128, 255]),
        (np.array([[-(2**31), 0, 2**31 - 1]], np.int32), [0, 128, 255]),
        (np.array([[0, 0x8000, 0xFFFF]], np.uint16), [0, 128, 255]),
    ],
)
def test_deep_and_float_values(values: Any, expected: list[int]) -> None:
    assert _pixels(encoded(Image.fromarray(values), "TIFF")) == [(gray, gray, gray) for gray in expected]


@pytest.mark.parametrize("format", ["PNG", "WEBP", "TIFF", "AVIF", "GIF"])
def test_transparent_black_is_white(format: str) -> None:
    options = {"lossless": True} if format == "WEBP" else {}
    assert set(_pixels(encoded(Image.new("RGBA", (8, 600)), format, **options))) == {(255, 255, 255)}


def test_half_transparent_colour_in_every_band() -> None:
    """The picture is composed in bands of rows; none may be missed or shifted."""
    alpha = (np.arange(5000 * 701) % 251).astype(np.uint8).reshape(701, 5000)
    rgba = np.dstack([np.zeros((701, 5000, 3), np.uint8), alpha])
    loaded = load_image(encoded(Image.fromarray(rgba), "PNG", compress_level=1))
    assert np.array_equal(np.asarray(loaded.image), np.repeat(255 - alpha[..., None], 3, axis=2))


@pytest.mark.parametrize("mode", ["F", "RGBA"])
def test_cost_does_not_grow_with_the_number_of_rows(mode: str) -> None:
    """Seconds of work would be minutes if each of the rows cost something."""
    tall = encoded(Image.new(mode, (1, 1_000_000)), "TIFF", compression="tiff_adobe_deflate")
    started = time.process_time()
    assert load_image(tall, ImageLimits(max_side_px=1_000_000)).size == (1, 1_000_000)
    assert time.process_time() - started < 2


def test_colour_profile_keeps_transparency_and_applies_to_palettes() -> None:
    profile = _wide_gamut_profile()
    managed = _pixels(encoded(Image.new("RGB", (1, 1), _RED), "PNG", icc_profile=profile))[0]
    assert managed[0] > 230 and managed[1] < 15  # the wide-gamut red lies outside sRGB
    half = _pixels(encoded(Image.new("RGBA", (1, 1), (*_RED, 128)), "PNG", icc_profile=profile))[0]
    assert all(abs(2 * h - m - 255) <= 3 for h, m in zip(half, managed, strict=True))
    palette = Image.new("P", (1, 1))
    palette.putpalette(_RED)
    assert _pixels(encoded(palette, "PNG", icc_profile=profile)) == [managed]


def test_colour_profile_of_another_space_or_unreadable_is_ignored() -> None:
    profile = _wide_gamut_profile()
    assert _pixels(encoded(Image.new("L", (1, 1), 100), "PNG", icc_profile=profile)) == [(100, 100, 100)]
    for broken in (b"no profile", profile[:130], b"\0" * 128):
        assert _pixels(encoded(Image.new("RGB", (1, 1), _RED), "PNG", icc_profile=broken)) == [_RED]


def _tiff_gray(bits: int, values: bytes, *, white_is_zero: bool = False, samples: int = 1, extra: int = 0) -> bytes:
    """One pixel of one sample, or of grey and ``extra`` alpha: 1 multiplied in, 2 not."""
    depth = bits | bits << 16 if samples == 2 else bits
    tags = [(256, 1, 1), (257, 1, 1), (258, samples, depth), (259, 1, 1), (262, 1, int(not white_is_zero))]
    tags += [(273, 1, 200), (277, 1, samples), (278, 1, 1), (279, 1, len(values)), (338, 1, extra)]
    tags = tags[: len(tags) if samples == 2 else -1]
    entries = b"".join(struct.pack("<HHII", tag, 3, count, value) for tag, count, value in tags)
    return (b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries).ljust(200, b"\0") + values


@pytest.mark.parametrize(("bits", "value"), [(8, b"\x10"), (16, b"\0\x10"), (4, b"\x10"), (1, b"\0")])
def test_a_tiff_in_which_zero_is_white(bits: int, value: bytes) -> None:
    [plain] = _pixels(_tiff_gray(bits, value))
    [turned] = _pixels(_tiff_gray(bits, value, white_is_zero=True))
    assert turned == tuple(255 - gray for gray in plain)


def test_a_tiff_of_32_bits_without_sign() -> None:
    """Half way to the extremes that it has, which is grey; read with a sign, it would be below zero."""
    assert _pixels(_tiff_gray(32, struct.pack("<I", 4_000_000_000))) == [(128, 128, 128)]
    assert "values from 0 to 8e+09" in load_image(_tiff_gray(32, struct.pack("<I", 4_000_000_000))).notes[0]


@pytest.mark.parametrize("extra", [1, 2])
def test_grey_tiff_with_alpha_multiplied_in_or_not(extra: int) -> None:
    assert _pixels(_tiff_gray(8, bytes([0, 128]), samples=2, extra=extra)) == [(127, 127, 127)]
