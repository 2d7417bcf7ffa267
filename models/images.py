"""The one safe loader of pictures, for HTTP, command line and training alike."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from PIL import Image, ImageFile

from models.errors import ImageError
from models.image_faults import image_fault
from models.image_formats import check_header, open_picture, quiet_pillow, sniff
from models.image_modes import to_rgb
from models.image_structure import bare_png, check_structure, gif_frames, with_one_profile

_MIB = 1024 * 1024
_HEAD_BYTES = 4096  # that the format is told by
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SWAPS_SIDES = {_TURNS[value] for value in (5, 6, 7, 8)}
_MAX_EXIF_BYTES = _MIB  # cameras write some 20 kB; a tag of millions of values would take seconds to read


@dataclass(frozen=True)
class ImageLimits:
    """What is accepted. Pillow's own limit of 179 million pixels holds as well, whatever ``max_pixels`` says."""

    max_bytes: int = 20 * _MIB
    max_pixels: int = 64_000_000
    max_side_px: int = 65_535
    """As in JPEG. Resizing costs memory by the longer side, whatever the number of pixels."""
    min_side_px: int = 1


@dataclass(frozen=True)
class LoadedImage:
    """A picture ready for a model."""

    image: Image.Image
    """Mode RGB, upright, without metadata."""
    size: tuple[int, int]
    """Width and height of the upright picture in full, also when ``draft_px`` made ``image`` smaller."""
    format: str
    """``JPEG``, ``PNG``, ``GIF``, ``WEBP``, ``AVIF``, ``HEIF``, ``BMP``, ``TIFF`` or ``PPM``, by content."""
    notes: tuple[str, ...] = ()
    """What a person who sent the picture should know, such as "first of 3 frames"."""


DEFAULT_LIMITS = ImageLimits()


def load_image(
    data: bytes | bytearray | memoryview, limits: ImageLimits = DEFAULT_LIMITS, *, draft_px: int | None = None
) -> LoadedImage:
    """The picture in ``data``: the first frame, turned upright, in sRGB, transparency on white.

    With ``draft_px`` a JPEG is decoded at 1/2, 1/4 or 1/8 of its size where both sides stay at least ``draft_px``:
    faster and smaller, with other rounding than a full decode. May be called from any number of threads.

    Raises:
        ImageError: ``empty``, ``not_an_image``, ``unsupported_format``, ``truncated``, ``too_large``, ``too_small``.
    """
    data = data if isinstance(data, bytes) else bytes(memoryview(data))
    if not data:
        raise ImageError("empty", "no bytes at all: send the content of an image file")
    if len(data) > limits.max_bytes:
        raise ImageError("too_large", f"{len(data)} bytes; at most {limits.max_bytes} are accepted")
    kind = sniff(data)
    check_structure(data, kind)
    try:
        with quiet_pillow:
            return _decode(data, kind, limits, draft_px)
    except ImageError:
        raise
    except Exception as error:
        raise image_fault(error, data, kind, limits.max_pixels) from error


def read_image(
    path: str | os.PathLike[str], limits: ImageLimits = DEFAULT_LIMITS, *, draft_px: int | None = None
) -> LoadedImage:
    """The picture in a regular file, as ``load_image`` gives it; the message of every error names the file.

    Raises:
        ImageError: the codes of ``load_image``; ``unreadable`` for what is no regular file or cannot be read.
    """
    data = read_bytes(path, limits)
    try:
        return load_image(data, limits, draft_px=draft_px)
    except ImageError as error:
        raise ImageError(error.code, f"{_printable(path)}: {error.detail}") from error


def read_bytes(path: str | os.PathLike[str], limits: ImageLimits = DEFAULT_LIMITS) -> bytes:
    """The content of a regular file that may be a picture; the message of every error names the file.

    Raises:
        ImageError: ``unreadable`` for what is no regular file or cannot be read, ``too_large``.
    """
    with _naming(path), _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limits.max_bytes:  # of one that is too large only as much is read as it takes to see that
            raise ImageError("too_large", f"{size} bytes; at most {limits.max_bytes} are accepted")
        return file.read(limits.max_bytes + 1)  # it may have grown since


def sniff_file(path: str | os.PathLike[str]) -> str:
    """The format of the picture in a regular file, by its first bytes; the message of every error names the file.

    Raises:
        ImageError: ``unsupported_format``, ``not_an_image``; ``unreadable`` for what is no regular file or cannot be
            read.
    """
    with _naming(path), _opened(path) as file:
        return sniff(file.read(_HEAD_BYTES))


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the block become ImageErrors that name the file."""
    try:
        yield
    except ImageError as error:
        raise ImageError(error.code, f"{_printable(path)}: {error.detail}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ImageError("unreadable", f"{_printable(path)} cannot be read: {reason}") from error


def _printable(path: str | os.PathLike[str]) -> str:
    """The path with bytes that are not UTF-8 escaped, so that a message with it can be printed anywhere."""
    return repr(os.fspath(path))


def _opened(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, open; raises OSError for anything else."""

    def without_waiting(name: str, flags: int) -> int:  # the opening of a FIFO would wait for a writer
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    file = open(path, "rb", opener=without_waiting)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("it is not a regular file")
    return file


def _decode(data: bytes, kind: str, limits: ImageLimits, draft_px: int | None) -> LoadedImage:
    if kind != "PNG":
        return _decode_once(data, kind, limits, draft_px)
    try:
        return _decode_once(with_one_profile(data), kind, limits, draft_px)
    except ImageError:
        raise
    except Exception:  # Pillow gives up on text of a megabyte, a profile or an animation that is broken, and the like
        if (bare := bare_png(data)) == data:
            raise
        return _decode_once(bare, kind, limits, draft_px)


def _decode_once(data: bytes, kind: str, limits: ImageLimits, draft_px: int | None) -> LoadedImage:
    picture = open_picture(data, kind)
    check_header(picture, data, kind, limits.max_pixels, limits.max_side_px)
    size = picture.size
    if min(size) < limits.min_side_px:
        raise ImageError("too_small", f"{size[0]} x {size[1]} pixels; each side needs {limits.min_side_px}")
    if draft_px and kind == "JPEG":
        picture.draft(None, (draft_px, draft_px))
    picture.load()
    turn, frames = _turn(picture, kind), _frames_note(picture, data, kind)
    image, notes = to_rgb(picture)
    del picture  # its pixels and its decoder's; the next step makes one more copy
    if turn is not None:
        image = image.transpose(turn)
        size = size[::-1] if turn in _SWAPS_SIDES else size
    image.info = {}  # with an orientation left in it, a later exif_transpose would turn the picture again
    return LoadedImage(image, size, kind, frames + notes)


def _turn(picture: ImageFile.ImageFile, kind: str) -> Image.Transpose | None:
    """How the pixels must be turned to be upright."""
    if kind in ("TIFF", "HEIF"):  # their decoders have done it
        return None
    if len(picture.info.get("exif") or b"") > _MAX_EXIF_BYTES:
        return None
    try:
        return _TURNS.get(picture.getexif().get(_ORIENTATION, 1))
    except Exception:  # metadata broken in any way (struct.error, SyntaxError, ...) never loses the picture
        return None


def _frames_note(picture: ImageFile.ImageFile, data: bytes, kind: str) -> tuple[str, ...]:
    """A note where more frames follow. Their number is told where the header has it: counting would cost a pass."""
    if kind in ("PNG", "WEBP", "AVIF"):
        frames = getattr(picture, "n_frames", 1)
        return (f"first of {frames} frames",) if frames > 1 else ()
    if kind == "GIF":
        return ("first of several frames",) if gif_frames(data) > 1 else ()
    # The further pictures of a JPEG or HEIC are depth maps, gain maps, second views.
    return ("first of several pages",) if kind == "TIFF" and getattr(picture, "is_animated", False) else ()
