"""Pixels of any mode as 8-bit sRGB: deep and float values scaled, colour profiles applied, transparency on white."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

_PROFILE_SPACES = {"RGB": "RGB ", "RGBA": "RGB ", "L": "GRAY", "CMYK": "CMYK"}
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339  # tags of TIFF
_PIECE_PIXELS = 1 << 20  # pieces of pixels and not of rows: a hostile picture may have 64 million rows


def to_rgb(picture: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """The decoded picture in mode RGB, and notes on what had to be guessed."""
    notes: tuple[str, ...] = ()
    image = picture.convert("LA") if picture.mode == "La" else picture  # Pillow has no other way out of this mode
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image, notes = _deep_to_gray(image)
    elif image.mode == "LAB":
        image = _lab_to_srgb(image)
    elif image.has_transparency_data:
        image = _with_alpha(image)
    elif image.mode not in _PROFILE_SPACES:
        image = image.convert("RGB")
    if profile := picture.info.get("icc_profile"):
        image = _to_srgb(image, profile)
    if image.mode == "RGBA":
        image = _on_white(image)
    return (image if image.mode == "RGB" else image.convert("RGB")), notes


def _with_alpha(image: Image.Image) -> Image.Image:
    key = image.info.get("transparency")
    if isinstance(key, tuple) and max(key) > 255:  # of a PNG with 16 bits a channel, of which Pillow keeps the upper 8
        image.info["transparency"] = tuple(value >> 8 for value in key)
    return image if image.mode == "RGBA" else image.convert("RGBA")


def _on_white(image: Image.Image) -> Image.Image:
    """Mode RGB from RGBA; in bands, because Pillow converts what it pastes, which would be one more whole copy."""
    white = Image.new("RGB", image.size, "white")
    rows = max(1, _PIECE_PIXELS // image.width)
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        white.paste(band, (0, top), band)
    return white


def _deep_to_gray(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """Mode L from 16-bit, 32-bit or float values, and a note where their range had to be guessed."""
    values, tags = np.asarray(image), getattr(image, "tag_v2", {})
    if image.mode.startswith("I;16"):
        gray = (values >> (_bits(image) - 8)).astype(np.uint8)
        key = image.info.get("transparency")
        if isinstance(key, int):  # PNG: one grey value that stands for transparent
            gray[values == key] = 255
        return Image.fromarray(_seen(gray, tags)), ()
    if image.mode == "I" and tags.get(_BITS) in (32, (32,)) and tags.get(_SAMPLE_FORMAT, (1,)) in (1, (1,)):
        values = values.view(np.uint32)  # which Pillow has no mode for
    with np.errstate(invalid="ignore"):  # a signalling NaN among the values
        low, high, guessed = _range_of(values)
        gray = _seen(_stretched(values, low, high), tags)
    notes = (f"values from {low:g} to {high:g} stretched to the visible range",) if guessed else ()
    return Image.fromarray(gray), notes


def _seen(gray: npt.NDArray[np.uint8], tags: Mapping[int, Any]) -> npt.NDArray[np.uint8]:
    """The greys as they are meant: a TIFF may say that 0 is white, which Pillow heeds in 8 bits only."""
    return np.invert(gray, out=gray) if tags.get(_PHOTOMETRIC) == 0 else gray


def _bits(image: Image.Image) -> int:
    """Bits that the values of a 16-bit mode use: TIFF may pack 12."""
    declared = getattr(image, "tag_v2", {}).get(_BITS)
    return 12 if declared in (12, (12,)) else 16


def _range_of(values: npt.NDArray[Any]) -> tuple[float, float, bool]:
    """The values that become black and white, and whether only the picture's own extremes told them."""
    usual = 65535.0 if np.issubdtype(values.dtype, np.integer) else 1.0
    known = np.isfinite(values)
    some = values.flat[known.argmax()] if known.any() else 0
    low, high = float(values.min(where=known, initial=some)), float(values.max(where=known, initial=some))
    if 0 <= low and high <= usual:
        return 0.0, usual, False
    return (low, high, True) if low < high else (low - abs(low), low + abs(low), True)  # one value all over: grey


def _stretched(values: npt.NDArray[Any], low: float, high: float) -> npt.NDArray[np.uint8]:
    """Values as 0..255, NaN as 0. In float64, where 3e38 - -3e38 does not overflow, and so piece by piece."""
    flat, gray = values.ravel(), np.empty(values.size, np.uint8)
    for start in range(0, flat.size, _PIECE_PIXELS):
        piece = slice(start, start + _PIECE_PIXELS)
        scaled = (flat[piece].astype(np.float64) - low) / (high - low) * 255
        gray[piece] = np.nan_to_num(scaled, nan=0, posinf=255, neginf=0).clip(0, 255).round()
    return gray.reshape(values.shape)


def _to_srgb(image: Image.Image, icc: bytes) -> Image.Image:
    """The image in sRGB by its profile, or unchanged where the profile cannot be read or is of other colours."""
    try:
        profile = ImageCms.ImageCmsProfile(BytesIO(icc))
        description = profile.profile.profile_description or ""
        if profile.profile.xcolor_space != _PROFILE_SPACES.get(image.mode) or description.startswith("sRGB"):
            return image
        mode = "RGBA" if image.mode == "RGBA" else "RGB"
        managed = ImageCms.profileToProfile(image, profile, ImageCms.createProfile("sRGB"), outputMode=mode)
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return image
    return managed or image


def _lab_to_srgb(image: Image.Image) -> Image.Image:
    lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    return ImageCms.buildTransform(lab, srgb, "LAB", "RGB").apply(image)
