"""Why a decoder gave up, as an ImageError: damage, a kind of picture that is not read, or a claim beyond the limits."""

import re
from io import BytesIO

from PIL import Image, UnidentifiedImageError

from models.errors import ImageError
from models.image_formats import quiet_pillow

_RARE = re.compile(r"cannot handle \d+-|unknown pixel mode|unknown data organization|Unsupported BMP|\d+$")
"""What Pillow says of a whole header that it has no decoder for; a bare number is TIFF's compression."""
_ISPE = re.compile(rb"ispe\0{4}(.{4})(.{4})", re.DOTALL)  # the box that says how large an AVIF or HEIC picture is


def image_fault(error: Exception, data: bytes, kind: str, max_pixels: int) -> ImageError:
    """The error for a picture that a decoder has refused with ``error``: it raises OSError, ValueError, SyntaxError,
    struct.error, MemoryError and others."""
    if isinstance(error, Image.DecompressionBombError | MemoryError) or _claims_more(data, kind, max_pixels):
        return ImageError("too_large", f"the {kind} claims more pixels than can be decoded")
    reason = _first_words(data, kind) if isinstance(error, UnidentifiedImageError) else str(error)
    if _RARE.match(reason):
        return ImageError("unsupported_format", f"this rare kind of {kind} is not read ({reason}): save it as PNG")
    return ImageError("truncated", f"the {kind} data are cut short or damaged ({reason or type(error).__name__})")


def _first_words(data: bytes, kind: str) -> str:
    """What the one decoder for this format says of the header; ``Image.open`` keeps it to itself."""
    try:
        with quiet_pillow:
            Image.OPEN[kind][0](BytesIO(data), "")
    except Exception as error:  # as above
        return str(error)[:100] if _RARE.match(str(error)) else "no whole header"
    return "no whole header"


def _claims_more(data: bytes, kind: str, max_pixels: int) -> bool:
    """Whether a size in the header of an AVIF or HEIC is beyond the limit; their decoders have limits of their own."""
    if kind not in ("AVIF", "HEIF"):
        return False
    sizes = (map(int.from_bytes, found.groups()) for found in _ISPE.finditer(data[: 1 << 16]))
    return any(width * height > max_pixels for width, height in sizes)
