"""Files that are mostly segments: refused from their structure, before a decoder walks them one by one."""

import struct
import time
import zlib
from collections.abc import Callable

import pytest
from PIL import Image

from models.errors import ImageError
from models.image_structure import bare_png, gif_frames, with_one_profile
from models.images import load_image
from tests.support import encoded

_SIZE = 8_000_000  # of data; half of what is accepted
_RED = (220, 30, 30)
_JPEG = encoded(Image.new("RGB", (16, 16), _RED), "JPEG")
_GIF = encoded(Image.new("P", (10, 10)), "GIF")
_FIRST_FRAME = _GIF.index(b"\x2c")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _png(more: bytes = b"", *, width: int = 1, after: bytes = b"") -> bytes:
    """A red row."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, 8, 2, 0, 0, 0))
    rows = _chunk(b"IDAT", zlib.compress(b"\0" + bytes(_RED) * width))
    return b"\x89PNG\r\n\x1a\n" + header + more + rows + after + _chunk(b"IEND", b"")


def _tiff(*changed: tuple[int, int, int, int], data: bytes = bytes(64), big: bool = False) -> bytes:
    """A black page of 8 x 8 pixels; entries are (tag, type, count, value)."""
    plain = [(256, 8), (257, 8), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 8), (279, 64)]
    new = {entry[0] for entry in changed}
    entries = [(tag, 3, 1, value) for tag, value in plain if tag not in new] + list(changed)
    packed = b"".join(struct.pack("<HHQQ" if big else "<HHII", *entry) for entry in entries)
    head = b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, len(entries)) if big else b"II*\0\x08\0\0\0"
    return head + (b"" if big else struct.pack("<H", len(entries))) + packed + bytes(8) + data


def _filled(unit: bytes, size: int = _SIZE) -> bytes:
    return unit * (size // len(unit))


_ENDLESS: dict[str, Callable[[], bytes]] = {
    "png text": lambda: _png(_filled(_chunk(b"tEXt", b""))),
    "png after the pixels": lambda: _png(after=_filled(_chunk(b"abCd", b""))),
    "png empty pixels": lambda: _png(_filled(_chunk(b"IDAT", b""))),
    "jpeg comments": lambda: _JPEG[:2] + _filled(b"\xff\xfe\0\2") + _JPEG[2:],
    "jpeg no length": lambda: _JPEG[:2] + _filled(b"\xff\xd8") + _JPEG[2:],
    "jpeg extensions": lambda: _JPEG[:2] + _filled(b"\xff\xf0") + _JPEG[2:],
    "jpeg fill bytes": lambda: _JPEG[:2] + _filled(b"\xff") + _JPEG[2:],
    "jpeg escapes": lambda: _JPEG[:2] + b"\xff\xfe\0\2" + _filled(b"\xff\0") + _JPEG[2:],
    "jpeg tables": lambda: _JPEG[:2] + _filled(b"\xff\xc4\0\2") + _JPEG[2:],
    "jpeg exif": lambda: _JPEG[:2] + (b"\xff\xe1\xff\xff" + b"Exif\0\0" + bytes(65_527)) * 100 + _JPEG[2:],
    "gif comments": lambda: _GIF[:_FIRST_FRAME] + _filled(b"\x21\xfe\1a\0") + _GIF[_FIRST_FRAME:],
    "gif comment": lambda: _GIF[:_FIRST_FRAME] + b"\x21\xfe" + _filled(b"\1a") + b"\0" + _GIF[_FIRST_FRAME:],
    "gif junk": lambda: _GIF[:_FIRST_FRAME] + bytes(_SIZE) + _GIF[_FIRST_FRAME:],
    "gif comments after the frame": lambda: _GIF[:-1] + _filled(b"\x21\xfe\1a\0") + b";",
    "gif junk after the frame": lambda: _GIF[:-1] + bytes(_SIZE) + b";",
    "tiff strips": lambda: _tiff((273, 4, 2_000_000, 8), (279, 4, 2_000_000, 8), data=bytes(_SIZE)),
    "tiff orientations": lambda: _tiff((274, 5, 900_000, 8), data=bytes(_SIZE)),
    "tiff tags": lambda: _tiff(*[(40_000, 3, 1, 0)] * 70_000, data=bytes(64), big=True),
    "tiff tile": lambda: _tiff(
        (322, 4, 1, 20_000), (323, 4, 1, 20_000), (324, 4, 1, 8), (325, 4, 1, 64), data=bytes(64)
    ),
    "ppm comments": lambda: b"P6 1 " + _filled(b"#\n") + b"1 255\n" + bytes(3),
    "ppm spaces": lambda: b"P6 1 " + _filled(b" ") + b"1 255\n" + bytes(3),
}


@pytest.mark.parametrize("name", _ENDLESS)
def test_countless_pieces_are_refused(name: str) -> None:
    """Pillow alone takes seconds to minutes for each, or hundreds of megabytes."""
    data = _ENDLESS[name]()
    started = time.process_time()
    with pytest.raises(ImageError) as caught:
        load_image(data)
    assert caught.value.code == "too_large"
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "data",
    [
        _png(_chunk(b"tEXt", b"a\0b") * 1000),
        _png() + bytes(2_000_000),
        _JPEG[:2] + b"\xff\xe2\xff\xff" * 1 + bytes(65_533) + b"\xff\xff\xff" + _JPEG[2:],
        _JPEG[:2] + b"".join(b"\xff\xed\xff\xff" + bytes(65_533) for _ in range(200)) + _JPEG[2:],
        _JPEG + bytes(100_000) + _JPEG * 3,
        _GIF[:_FIRST_FRAME] + b"\x21\xfe\1a\0" * 1000 + _GIF[_FIRST_FRAME:],
        _GIF + bytes(100_000),
        _tiff((301, 3, 3 * 65_536, 8), data=bytes(400_000)),
        _tiff((40_000, 4, 1_000_000, 8), data=bytes(4_000_000)),
        _tiff((306, 2, 1_000_000, 8), data=bytes(1_000_000)),
        _tiff((258, 3, 2**31, 8)),
        b"P6 #" + b"a" * 3000 + b"\n1 1 # more\n255\n" + bytes(_SIZE),
    ],
    ids=[
        *("png-texts", "png-trailer", "jpeg-fill", "jpeg-20-mb", "jpeg-trailer", "gif-comments", "gif-trailer"),
        *("tiff-transfer", "tiff-private", "tiff-text", "tiff-values-that-are-not-there", "ppm-comment"),
    ],
)
def test_large_or_odd_but_honest_files_are_read(data: bytes) -> None:
    assert load_image(data).image.mode == "RGB"


def test_orientation_in_metadata_of_megabytes_is_not_looked_for() -> None:
    tags = struct.pack("<HHHII", 1, 0x0112, 5, 900_000, 8)
    started = time.process_time()
    assert load_image(_png(_chunk(b"eXIf", b"II*\0\x08\0\0\0" + tags + bytes(8_000_000)), width=3)).size == (3, 1)
    assert time.process_time() - started < 1


_INFLATES = zlib.compress(bytes(30_000_000), 9)


@pytest.mark.parametrize(
    "more",
    [
        _chunk(b"iCCP", b"x\0\0" + _INFLATES),
        _chunk(b"zTXt", b"x\0\0" + _INFLATES),
        _chunk(b"iTXt", b"x\0\1\0\0\0" + _INFLATES),
        _chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(900_000), 9)) * 5000,
        _chunk(b"zTXt", b"x\0\0" + zlib.compress(bytes(900_000), 9)) * 200,
        _chunk(b"tRNS", b"\0"),
        _chunk(b"tRNS", b""),
        _chunk(b"acTL", struct.pack(">II", 2, 0))
        + _chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 9, 9, 5, 5, 1, 1, 0, 0)),
        _chunk(b"acTL", b""),
        _chunk(b"pHYs", b"1"),
        _chunk(b"eXIf", b"MM\0*" + b"\xff" * 400),
    ],
    ids=[
        *("profile-bomb", "text-bomb", "utf8-bomb", "profiles", "texts", "short-key", "no-key", "frame", "animation"),
        *("density", "exif"),
    ],
)
def test_what_is_wrong_with_the_rest_of_a_png_does_not_lose_the_picture(more: bytes) -> None:
    started = time.process_time()
    assert load_image(_png(more)).image.getpixel((0, 0)) == _RED
    assert time.process_time() - started < 2


def test_a_bare_png_keeps_pixels_palette_and_transparency() -> None:
    key = _chunk(b"tRNS", struct.pack(">3H", *_RED))
    plain = _png(key)
    assert bare_png(_png(_chunk(b"tEXt", b"a\0b") + key, after=_chunk(b"tIME", bytes(7)))) == plain
    assert bare_png(plain) == plain
    assert load_image(plain).image.getpixel((0, 0)) == (255, 255, 255)
    cut = plain[:-20]
    assert bare_png(cut) == cut


def test_of_several_profiles_the_first_is_kept() -> None:
    first, second = _chunk(b"iCCP", b"1"), _chunk(b"iCCP", b"22")
    assert with_one_profile(_png(first + second + second)) == _png(first)
    assert with_one_profile(_png(first)) == _png(first)


def test_frames_of_a_gif_are_counted_up_to_two() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "white")]
    assert gif_frames(_GIF) == 1
    assert gif_frames(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])) == 2
    assert gif_frames(_GIF[:-1]) == 1
    assert gif_frames(_GIF[:10]) == 0
