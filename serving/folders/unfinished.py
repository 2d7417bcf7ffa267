"""The name of a file while it is not whole: hidden, short whatever the other is, and nobody else's."""

import secrets
from pathlib import Path

SUFFIX = ".limner-unfinished"


def unfinished(path: Path) -> Path:
    """A name beside ``path`` that no other process takes, on whatever machine: process ids repeat among containers."""
    return path.with_name(f".{secrets.token_hex(8)}{SUFFIX}")
