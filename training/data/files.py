"""Reading of annotation files and of the paths in them, shared by the data formats."""

from __future__ import annotations

import json
import os
from pathlib import Path, PureWindowsPath
from typing import Any

from models.errors import DataError


def load_json(path: Path) -> Any:
    """The parsed file; a byte order mark and UTF-16 are recognised.

    Raises:
        DataError: ``no_data`` when it cannot be opened, ``not_json`` when it cannot be parsed.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise DataError("no_data", f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError("not_json", f"{path} is not JSON: {error}") from error


def inside_root(listed: str) -> str | None:
    """The path without detours, or None when it leaves the image folder. Links inside the folder are trusted."""
    path = os.path.normpath(listed)
    if (
        Path(path).parts[:1] == ("..",)
        or os.path.isabs(path)
        or PureWindowsPath(listed).drive
        or "\x00" in listed
        or "..\\" in listed
    ):
        return None
    return path
