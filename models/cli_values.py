"""``key=value`` words of the command line."""

import json
from collections.abc import Sequence
from typing import Any

from models.decoding import DEFAULT_STRATEGY
from models.errors import RequestError


def decode_words(name: str | None, options: Sequence[str], guidance: float | None = None) -> dict[str, Any] | None:
    """The words of the command line as a request's ``decode``; None where there are none, which is the model's own.

    Options without a name are those of the default strategy; guidance alone goes with the model's own.
    """
    decode: dict[str, Any] = {} if guidance is None else {"guidance": guidance}
    if name is not None or options:
        decode |= {"name": name or DEFAULT_STRATEGY, "options": key_values(options)}
    return decode or None


def key_values(pairs: Sequence[str]) -> dict[str, Any]:
    """``key=value`` words as a dict; a value is read as JSON where it is JSON, else taken as text.

    Raises:
        RequestError: ``invalid_request`` for a word without ``=`` or a key given twice.
    """
    parsed: dict[str, Any] = {}
    for key, value in key_texts(pairs).items():
        try:
            parsed[key] = json.loads(value)
        except ValueError:
            parsed[key] = value
    return parsed


def key_texts(pairs: Sequence[str]) -> dict[str, str]:
    """``key=value`` words as a dict of texts. Raises as ``key_values`` does."""
    parsed: dict[str, str] = {}
    for word in pairs:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise RequestError("invalid_request", f"{word!r} is not key=value")
        if key in parsed:
            raise RequestError("invalid_request", f"option {key!r} is given twice")
        parsed[key] = value
    return parsed


def numbers(pairs: Sequence[str]) -> dict[str, float]:
    """``name=number`` words as a dict. Raises as ``key_values`` does, also for what is no number."""
    values = key_values(pairs)
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise RequestError("invalid_request", f"coefficient {name}={value} is no number")
    return values
