"""Real files of every format, and ways to damage them."""

import struct
import zlib
from collections.abc import Iterator
from functools import cache

from hypothesis import strategies as st
from PIL import Image

from tests.support import CASES, encoded

_LARGEST_ORIGINAL = 30_000
_NUMBERS = [bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\xff\xff", b"\xff\xff\0\0", b"\0\0\0\1"]


@cache
def originals() -> tuple[bytes, ...]:
    """The given pictures, and kinds that are not among them."""
    given = [path.read_bytes() for path in sorted((CASES / "images").iterdir())]
    return (*(data for data in given if 0 < len(data) < _LARGEST_ORIGINAL), *_further())


def _further() -> Iterator[bytes]:
    colours = Image.linear_gradient("L").resize((40, 30))
    frames = [colours.point(lambda value, add=add: value + add) for add in (20, 40)]  # type: ignore[misc]
    for mode, format in (("LA", "TIFF"), ("CMYK", "TIFF"), ("LAB", "TIFF"), ("YCbCr", "TIFF"), ("1", "TIFF")):
        yield encoded(colours.convert(mode) if mode != "LAB" else Image.new("LAB", (9, 9)), format)
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"):
        yield encoded(colours.convert("RGB"), "TIFF", compression=compression)
    for format in ("GIF", "PNG", "WEBP", "TIFF", "AVIF"):
        yield encoded(colours, format, save_all=True, append_images=frames)
    yield encoded(colours.convert("RGBA"), "WEBP", lossless=True)
    yield encoded(colours.convert("CMYK"), "JPEG")
    yield encoded(colours, "JPEG", progressive=True)
    for mode in ("1", "P", "RGB"):
        yield encoded(colours.convert(mode), "BMP")
    for mode in ("1", "L", "RGB"):
        yield encoded(colours.convert(mode), "PPM")


_STEPS = st.one_of(
    st.tuples(st.just("flip"), st.floats(0, 1), st.integers(0, 7)),
    st.tuples(st.just("set"), st.floats(0, 1), st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("number"), st.floats(0, 1), st.sampled_from(_NUMBERS)),
    st.tuples(st.just("header"), st.integers(0, 200), st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("insert"), st.floats(0, 1), st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("repeat"), st.floats(0, 1), st.integers(1, 60)),
    st.tuples(st.just("drop"), st.floats(0, 1), st.integers(1, 400)),
    st.tuples(st.just("cut"), st.floats(0, 1), st.none()),
    st.tuples(st.just("splice"), st.floats(0, 1), st.integers(0, 1000)),
)


@st.composite
def damaged_pictures(draw: st.DrawFn) -> bytes:
    """A picture after one to eight changes; half the PNGs get right checksums again, or few would be decoded."""
    files = originals()
    data = files[draw(st.integers(0, len(files) - 1))]
    for name, place, value in draw(st.lists(_STEPS, min_size=1, max_size=8)):
        data = _changed(data, name, place, value)
    return with_checksums(data) if draw(st.booleans()) else data


def _changed(data: bytes, name: str, place: float, value: object) -> bytes:
    at = min(int(place), len(data)) if name == "header" else int(place * len(data))
    if isinstance(value, bytes):
        return data[:at] + value + data[at + (len(value) if name != "insert" else 0) :]
    if name == "cut":
        return data[:at]
    assert isinstance(value, int)
    if name == "flip":
        return data[:at] + bytes([data[at] ^ (1 << value)]) + data[at + 1 :] if at < len(data) else data
    if name == "splice":
        other = originals()[value % len(originals())]
        return data[:at] + other[int(place * len(other)) :]
    return data[:at] + (data[at : at + value] * 2 if name == "repeat" else b"") + data[at + value :]


def with_checksums(data: bytes) -> bytes:
    """A PNG with the checksum of every chunk made right; anything else as it is."""
    if not data.startswith(b"\x89PNG"):
        return data
    fixed, start = bytearray(data), 8
    while start + 12 <= len(data):
        end = start + 8 + int.from_bytes(data[start : start + 4], "big")
        if end + 4 <= len(data):
            fixed[end : end + 4] = struct.pack(">I", zlib.crc32(data[start + 4 : end]))
        start = end + 4
    return bytes(fixed)
