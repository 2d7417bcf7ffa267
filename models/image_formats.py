"""Which picture formats are read: told by content, opened by one decoder each, checked by header before decoding."""

import re
import threading
import warnings
from collections.abc import Callable
from io import BytesIO

# Each plugin registers its decoder when imported. Named here, no thread has to wait for Pillow to look for them, and
# none of Pillow's other fifty formats can be reached.
from PIL import (
    AvifImagePlugin,  # noqa: F401
    BmpImagePlugin,  # noqa: F401
    GifImagePlugin,  # noqa: F401
    Image,
    ImageFile,
    JpegImagePlugin,  # noqa: F401
    PngImagePlugin,  # noqa: F401
    PpmImagePlugin,  # noqa: F401
    TiffImagePlugin,  # noqa: F401
    WebPImagePlugin,  # noqa: F401
)

from models.errors import ImageError

ACCEPTED = frozenset({"JPEG", "PNG", "GIF", "WEBP", "AVIF", "HEIF", "BMP", "TIFF", "PPM"})
_ACCEPTED_TEXT = "JPEG, PNG, GIF, WebP, AVIF, HEIC, BMP, TIFF or PPM"

# What the first bytes say. The formats after the blank line are known only to be refused by name.
_SIGNATURES = tuple(
    (name, re.compile(pattern, re.DOTALL))
    for name, pattern in (
        ("JPEG", rb"\xff\xd8\xff"),
        ("PNG", rb"\x89PNG\r\n\x1a\n"),
        ("GIF", rb"GIF8[79]a"),
        ("WEBP", rb"RIFF....WEBP"),
        ("AVIF", rb"....ftyp(?:avi[fs]|mi[af]1(?:....){1,8}?avi[fs])"),
        ("HEIF", rb"....ftyp(?:hei[cfmsx]|hev[cmsx]|mif1|msf1)"),
        ("BMP", rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0"),
        ("TIFF", rb"II[*+]\0|MM\0[*+]"),
        ("PPM", rb"P[456]\s+(?:#[^\n]*\n\s*)*\d"),
        #
        ("SVG", rb"(?i)(?:\xef\xbb\xbf)?\s*(?:<svg|<[?!](?!doctype html).{0,4000}?<svg)[\s>]"),
        ("PostScript", rb"%!PS|\xc5\xd0\xd3\xc6"),
        ("PDF", rb"%PDF-"),
        ("Photoshop", rb"8BPS\0"),
        ("JPEG XL", rb"\xff\x0a|\0\0\0\x0cJXL "),
        ("JPEG 2000", rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51"),
        ("icon", rb"\0\0[\1\2]\0[^\0]\0|icns"),
        ("OpenEXR", rb"\x76\x2f\x31\x01"),
        ("Radiance", rb"#\?RADIANCE"),
        ("FITS", rb"SIMPLE  ="),
        ("DDS", rb"DDS \x7c"),
        ("PNM text or PAM", rb"P[1237Ff]\s+(?:#[^\n]*\n\s*)*(?:\d|WIDTH)"),
        ("video", rb"....ftyp|\x1a\x45\xdf\xa3|RIFF....AVI "),
    )
)
_TGA_FOOTER = b"TRUEVISION-XFILE.\0"

# The most pixels that one byte of data can stand for. JPEG: a block of 8 x 8 pixels takes at least one bit. PNG:
# deflate expands at most 1032 times, 8 pixels in a byte. BMP and PPM: 8 pixels in a byte. Others have no such bound.
_PIXELS_PER_BYTE = {"JPEG": 512, "PNG": 8256, "BMP": 8, "PPM": 8}

# Every scan of a JPEG passes over all its pixels and may take only some ten bytes. Encoders write about ten.
_MAX_JPEG_SCANS = 100
_JPEG_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")


def sniff(data: bytes) -> str:
    """The format of ``data`` by its content, one of ``ACCEPTED``; names and types that others give are not trusted.

    Raises:
        ImageError: ``unsupported_format`` for other pictures, ``not_an_image`` for anything else.
    """
    head = data[:4096]
    found = next((name for name, signature in _SIGNATURES if signature.match(head)), None)
    if found is None and data.endswith(_TGA_FOOTER):
        found = "TGA"
    if found is None:
        raise ImageError("not_an_image", f"the data, which begin with {head[:12]!r}, are no picture: {_advice()}")
    if found not in ACCEPTED:
        raise ImageError("unsupported_format", f"{found} is not read: {_advice()}")
    return found


def open_picture(data: bytes, kind: str) -> ImageFile.ImageFile:
    """The picture with its header read and its pixels not yet decoded; ``kind`` is from ``sniff``.

    Raises:
        ImageError: ``unsupported_format`` for HEIC without pillow-heif.
        Exception: whatever the decoder raises on damaged data.
    """
    if kind != "HEIF":
        return Image.open(BytesIO(data), formats=[kind])
    try:
        from pillow_heif.as_plugin import HeifImageFile  # optional; not registered, so that Pillow stays as it was
    except ImportError as error:
        raise ImageError("unsupported_format", "HEIC needs pillow-heif: pip install limner[heif]") from error
    opener: Callable[[BytesIO], ImageFile.ImageFile] = HeifImageFile
    return opener(BytesIO(data))


def check_header(picture: ImageFile.ImageFile, data: bytes, kind: str, max_pixels: int, max_side_px: int) -> None:
    """Refuse what would cost too much to decode, from the header alone.

    Raises:
        ImageError: ``too_large``, ``truncated`` or ``unsupported_format``.
    """
    width, height = picture.size
    if width * height > max_pixels:
        raise ImageError("too_large", f"{width} x {height} pixels; at most {max_pixels} are accepted")
    if max(width, height) > max_side_px:
        raise ImageError("too_large", f"{width} x {height} pixels; at most {max_side_px} on a side are accepted")
    if any(tile[0] in Image.DECODERS for tile in picture.tile):
        # BMP with run lengths, PPM with an odd maximum: Pillow decodes these pixel by pixel in Python.
        raise ImageError("unsupported_format", f"this rare kind of {kind} is not read: save it as PNG")
    if kind in _PIXELS_PER_BYTE and width * height > len(data) * _PIXELS_PER_BYTE[kind]:
        raise ImageError("truncated", f"{len(data)} bytes of {kind} cannot hold {width} x {height} pixels")
    if kind == "JPEG" and data.count(b"\xff\xda") > _MAX_JPEG_SCANS and _jpeg_scans(data) > _MAX_JPEG_SCANS:
        raise ImageError("too_large", f"a JPEG of more than {_MAX_JPEG_SCANS} scans: save it as a baseline JPEG")


def _advice() -> str:
    return f"send {_ACCEPTED_TEXT}"


def _jpeg_scans(data: bytes) -> int:
    """Scans of the first picture in the file; what follows it (a second view, a video) is not counted."""
    scans, position = 0, 2
    while (marker := _JPEG_MARKER.search(data, position)) and marker[1] != b"\xd9":
        scans += marker[1] == b"\xda"
        length = int.from_bytes(data[marker.end() : marker.end() + 2], "big")
        position = marker.end() + length
    return scans


class _QuietPillow:
    """A context in which warnings from inside Pillow are ignored, for any number of threads at once.

    Pillow warns about metadata that nobody here reads, and where warnings are errors that would lose the picture.
    ``warnings.catch_warnings`` restores the filters of the whole process, which overlapping threads would do in the
    wrong order; here the first one in adds a single filter and the last one out removes it.
    """

    _FILTER = ("ignore", None, Warning, re.compile(r"(PIL|pillow_heif)\b"), 0)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._FILTER not in warnings.filters:
                warnings.filterwarnings("ignore", module=self._FILTER[3].pattern)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._FILTER in warnings.filters:
                warnings.filters.remove(self._FILTER)  # type: ignore[attr-defined]


quiet_pillow = _QuietPillow()
