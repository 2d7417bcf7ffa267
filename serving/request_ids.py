"""Which request ids of clients are kept. They come back in headers, bodies and logs, so any other is replaced."""

import re
from uuid import uuid4

HEADER = "x-request-id"

_USABLE = re.compile(r"[A-Za-z0-9._:+/=-]{1,128}")


def usable_id(given: str) -> str:
    """``given``, or a new id where it is none."""
    return given if _USABLE.fullmatch(given) else str(uuid4())
