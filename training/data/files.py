"""Reading of annotation files and of the paths in them, shared by the data formats."""

from __future__ import annotations

import codecs
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import Any

from models.errors import DataError
from training.data.text import one_line

PICTURE_SUFFIXES = frozenset(
    ".jpg .jpeg .jfif .png .gif .webp .avif .heic .heif .bmp .tif .tiff .ppm .pgm .pbm .pnm".split()
)
"""Of files that are taken for pictures where no list names them; what they are is decided by content."""

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}

_SURROGATES = re.compile("[\ud800-\udfff]")
_UNDECODED = re.compile("[\udc80-\udcff]")


def read_bytes(path: Path) -> bytes:
    """The content of an annotation file.

    Raises:
        DataError: ``no_data`` when it cannot be opened.
    """
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise DataError("no_data", f"cannot read {path}: {reason}") from error


def load_json(path: Path) -> Any:
    """The parsed file; a byte order mark and UTF-16 are recognised.

    Raises:
        DataError: ``no_data`` when it cannot be opened, ``not_json`` when it cannot be parsed.
    """
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise DataError("not_json", f"{path} is not JSON: {error}") from error


def load_text(path: Path, encoding: str) -> str:
    """The text of a file, line ends as they are. Bytes that do not fit the encoding become lone surrogates
    (``surrogateescape``), so that one bad line does not cost the others: see ``undecoded``.

    Raises:
        DataError: ``no_data`` when it cannot be opened, ``wrong_schema`` when it is no text at all.
    """
    content = read_bytes(path)
    encoding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), encoding)
    try:
        return content.decode(encoding, "surrogateescape")
    except UnicodeDecodeError as error:
        raise DataError("wrong_schema", f"{path} is no text in {encoding}: {error.reason}") from error


def undecoded(text: str) -> bool:
    """Whether ``load_text`` met bytes in this part of its text that do not fit the encoding."""
    return _UNDECODED.search(text) is not None


def inside_root(listed: str) -> str | None:
    """The path without detours, or None when it leaves the image folder. Links inside the folder are trusted: whoever
    owns the folder put them there. A name that is no Unicode text is None, too."""
    path = os.path.normpath(listed)
    if (
        Path(path).parts[:1] == ("..",)
        or os.path.isabs(path)
        or PureWindowsPath(listed).drive
        or "\x00" in listed
        or "..\\" in listed
        or _SURROGATES.search(listed)
    ):
        return None
    return path


def picture_path(root: Path, inside: str) -> Path:
    """The file ``inside`` the folder, under another spelling where only that is there: accents as one character or as
    two (macOS), backslashes between folders (Windows)."""
    path = root / inside
    if (inside.isascii() and "\\" not in inside) or os.path.isfile(path):
        return path
    folders = inside.replace("\\", "/")
    for spelling in (folders, unicodedata.normalize("NFC", folders), unicodedata.normalize("NFD", folders)):
        if os.path.isfile(root / spelling):
            return root / spelling
    return path


def pictures_under(folder: Path) -> Iterator[Path]:
    """Files that look like pictures, sorted; hidden ones, macOS's ``._`` doubles among them, are passed over."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in PICTURE_SUFFIXES:
                yield Path(parent, name)


def describe_json(raw: Any) -> str:
    """What a JSON file is that is not what was expected."""
    first = raw[0] if isinstance(raw, list) and raw else None
    if isinstance(first, dict) and {"image_id", "caption"} <= first.keys():
        return "a results file (a list of image_id and caption)"
    if isinstance(raw, dict) and isinstance(raw.get("annotations"), list):
        captions = any(isinstance(item, dict) and "caption" in item for item in raw["annotations"])
        return "a COCO captions file (images and annotations)" if captions else "a COCO instances file (no captions)"
    if isinstance(raw, dict) and isinstance(raw.get("images"), list):
        sentences = any(isinstance(item, dict) and "sentences" in item for item in raw["images"])
        return "a file in Karpathy's format" if sentences else "a list of images without captions"
    if isinstance(raw, dict):
        return f"an object with the keys {sorted(raw)[:8]}"
    return f"a {type(raw).__name__}"


def as_id(value: Any) -> str | None:
    """An id as text, or None for what is none. Never through a float, which merges ids above 2**53."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))  # pandas writes whole columns of integers as 1.0, 2.0, ... when one is absent
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        return one_line(str(value)).strip() or None
    return None
