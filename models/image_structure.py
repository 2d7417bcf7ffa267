"""How many pieces a picture file is made of, checked before a decoder written in Python walks them one by one.

Millions of empty segments fit into a few megabytes and would cost a decoder minutes, or a gigabyte. No encoder comes
near these limits.
"""

import re
import struct
from collections.abc import Iterator

from models.errors import ImageError

_MAX_PNG_CHUNKS = 20_000  # 20 MiB in chunks of 1 kB; the usual size is 8 kB
_MAX_JPEG_SEGMENTS = 5_000  # all before the first scan
_MAX_JPEG_EXIFS = 16  # Pillow joins them; each takes up to 64 kB
_MAX_JPEG_FILL_BYTES = 1 << 16
_MAX_GIF_BLOCKS = 500_000  # 20 MiB are 80 000 blocks of the usual 255 bytes
_MAX_GIF_JUNK_BYTES = 1 << 16
_MAX_TIFF_ENTRIES = 1 << 16
_MAX_TIFF_VALUES = 200_000  # of one entry; a transfer function has 3 * 65 536
_MAX_PPM_HEADER_BYTES = 4096
_LEAST_TILE_PIXELS = 1 << 22  # a small picture may stand in one large tile

_JPEG_MARKER = re.compile(rb"\xff+([^\x00\xff])")
_JPEG_WITHOUT_LENGTH = frozenset([0x01, 0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)])
_GIF_MARK = re.compile(rb"[\x21\x2c\x3b]")
_PPM_SPACE = rb"(?:\s|#[^\r\n]*[\r\n])+"
_PPM_HEADER = re.compile(rb"P(?:4(?:%s\d+){2}|[56](?:%s\d+){3})\s" % (_PPM_SPACE, _PPM_SPACE))

_TIFF_BYTES = frozenset({1, 2, 6, 7})  # types that are read in one piece
_FIRST_PRIVATE_TAG = 32_768  # nobody reads the values of these
_TIFF_SIZES = {256, 257, 322, 323}  # width, height, tile width, tile height
_PNG_NEEDED = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})
_PNG_KEYS = {0: (2, 2), 2: (6, 6), 3: (1, 256)}  # colour type -> least and most bytes of tRNS


def check_structure(data: bytes, kind: str) -> None:
    """Refuse a file of more pieces than any encoder writes. Damage is left for the decoder to find.

    Raises:
        ImageError: ``too_large``.
    """
    if kind == "PNG":
        _count_png_chunks(data)
    elif kind == "JPEG":
        _count_jpeg_segments(data)
    elif kind == "GIF":
        gif_frames(data)
    elif kind == "TIFF":
        _check_tiff_directory(data)
    elif kind == "PPM" and len(data) > _MAX_PPM_HEADER_BYTES and not _PPM_HEADER.match(data[:_MAX_PPM_HEADER_BYTES]):
        raise ImageError("too_large", f"a PPM header of more than {_MAX_PPM_HEADER_BYTES} bytes: {_AGAIN}")


_AGAIN = "save the picture again without what does not belong to it"


def bare_png(png: bytes) -> bytes:
    """The PNG with nothing but its pixels, its palette and its transparency: what is wrong with the rest never loses
    the picture."""
    kept = [png[:8]]
    for kind, start, end in _png_chunks(png):
        if kind in _PNG_NEEDED or (kind == b"tRNS" and _key_fits(png[25], end - start - 12)):
            kept.append(png[start:end])
    return b"".join(kept)


def with_one_profile(png: bytes) -> bytes:
    """The PNG less every colour profile but the first: Pillow would inflate each."""
    if png.count(b"iCCP") < 2:
        return png
    profiles = [(start, end) for kind, start, end in _png_chunks(png) if kind == b"iCCP"]
    kept, place = [], 0
    for start, end in profiles[1:]:
        kept.append(png[place:start])
        place = end
    return b"".join([*kept, png[place:]])


def gif_frames(data: bytes) -> int:
    """0, 1, or 2 for "several": the frames that begin in the data.

    Raises:
        ImageError: ``too_large`` for blocks or junk beyond all measure.
    """
    frames = junk = blocks = 0
    place = 13 + _palette_bytes(data, 10)
    while (mark := _GIF_MARK.search(data, place)) and mark[0] != b"\x3b" and frames < 2:
        junk += mark.start() - place
        place = mark.end() + 1  # of an extension: past its label
        if mark[0] == b"\x2c":
            frames += 1
            place = mark.end() + 10 + _palette_bytes(data, mark.end() + 8)
        while place < len(data) and data[place]:
            place += data[place] + 1
            blocks += 1
            if blocks > _MAX_GIF_BLOCKS:
                raise ImageError("too_large", f"a GIF of more than {_MAX_GIF_BLOCKS} blocks: {_AGAIN}")
        place += 1
    rest = len(data) if mark is None else mark.start()
    if junk + max(0, rest - place) > _MAX_GIF_JUNK_BYTES:
        raise ImageError("too_large", f"a GIF with more than {_MAX_GIF_JUNK_BYTES} bytes between its blocks: {_AGAIN}")
    return frames


def _png_chunks(png: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(kind, start, end) of every chunk; what follows the last one is no part of the picture."""
    start, kind = 8, b""
    while start + 8 <= len(png) and kind != b"IEND":
        end = start + 12 + int.from_bytes(png[start : start + 4], "big")
        kind = png[start + 4 : start + 8]
        yield kind, start, end
        start = end


def _count_png_chunks(png: bytes) -> None:
    for count, _ in enumerate(_png_chunks(png), start=1):
        if count > _MAX_PNG_CHUNKS:
            raise ImageError("too_large", f"a PNG of more than {_MAX_PNG_CHUNKS} chunks: {_AGAIN}")


def _key_fits(colour_type: int, length: int) -> bool:
    least, most = _PNG_KEYS.get(colour_type, (1, 0))
    return least <= length <= most


def _count_jpeg_segments(data: bytes) -> None:
    place, segments, exifs, fill = 2, 0, 0, 0
    while (marker := _JPEG_MARKER.search(data, place)) and marker[1] != b"\xda":
        segments += 1
        fill += marker.end() - 2 - place
        place = marker.end()
        if marker[1][0] not in _JPEG_WITHOUT_LENGTH:
            exifs += data[place + 2 : place + 6] == b"Exif"
            place += max(2, int.from_bytes(data[place : place + 2], "big"))
        if segments > _MAX_JPEG_SEGMENTS or fill > _MAX_JPEG_FILL_BYTES or exifs > _MAX_JPEG_EXIFS:
            raise ImageError("too_large", f"a JPEG with a header of countless segments or fill bytes: {_AGAIN}")


def _palette_bytes(data: bytes, flags_at: int) -> int:
    flags = data[flags_at] if flags_at < len(data) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _check_tiff_directory(data: bytes) -> None:
    """The entries of the first page: a decoder makes a Python object of each value of some, such as strips."""
    sizes = dict.fromkeys(_TIFF_SIZES, 0)
    for tag, kind, count, value in _tiff_entries(data):
        there = 2 * count <= len(data)  # what is not there costs nothing
        if there and count > _MAX_TIFF_VALUES and kind not in _TIFF_BYTES and tag < _FIRST_PRIVATE_TAG:
            raise ImageError("too_large", f"a TIFF with {count} values of tag {tag}: {_AGAIN}")
        if tag in sizes:
            sizes[tag] = value
    width, height, tile_width, tile_height = (sizes[tag] for tag in sorted(sizes))
    if tile_width * tile_height > max(width * height, _LEAST_TILE_PIXELS):
        raise ImageError("too_large", f"a TIFF of {width} x {height} pixels with tiles of {tile_width} x {tile_height}")


def _tiff_entries(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(tag, type, count, first value where it stands in the entry) of the first page."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\0", b"\0+")
    start = struct.Struct(order + ("8xQ" if big else "4xI"))
    number, entry = struct.Struct(order + "HQ"[big]), struct.Struct(order + ("HHQ8s" if big else "HHI4s"))
    try:
        place = start.unpack_from(data)[0]
        entries = number.unpack_from(data, place)[0]
        if entries > _MAX_TIFF_ENTRIES:
            raise ImageError("too_large", f"a TIFF with {entries} tags: {_AGAIN}")
        for at in range(place + number.size, place + number.size + entries * entry.size, entry.size):
            tag, kind, count, value = entry.unpack_from(data, at)
            yield tag, kind, count, struct.unpack_from(order + ("H" if kind == 3 else "I"), value)[0]
    except (struct.error, OverflowError):
        return  # cut short: for the decoder to tell
