"""JSON as RFC 8259 means it: UTF-8, with a byte order mark or without, no NaN, no key twice, nothing that Python would
read but others would not, and no millions of values."""

import json
import math
from codecs import BOM_UTF8
from typing import Any, NoReturn

from models.errors import RequestError

_MAX_COMMAS = 200_000  # an empty list takes three bytes of a body and a hundred of memory
_EXACT = 2**53  # up to here a float holds every integer
_INT_DIGITS = 19  # what 64 bits can hold; longer ones are a mistake or an attack


def parse_json(data: bytes | str, what: str = "the body") -> Any:
    """The value that ``data`` holds.

    Raises:
        RequestError: ``malformed_json``; the detail says where, and never quotes ``data``.
    """
    try:
        text = data.removeprefix(BOM_UTF8).decode("utf-8") if isinstance(data, bytes) else data
        if text.count(",") > _MAX_COMMAS:
            raise ValueError(f"more than {_MAX_COMMAS} commas")
        return json.loads(
            text, parse_constant=_no_constant, parse_int=_int, parse_float=_float, object_pairs_hook=_object
        )
    except UnicodeDecodeError as error:
        raise _malformed(what, f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _malformed(what, f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _malformed(what, "nested too deeply") from None
    except ValueError as error:
        raise _malformed(what, str(error)) from None


def _malformed(what: str, why: str) -> RequestError:
    return RequestError("malformed_json", f"{what} is not JSON: {why}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _int(digits: str) -> int:
    length = len(digits.lstrip("-"))
    if length > _INT_DIGITS:
        raise ValueError(f"an integer of {length} digits")
    return int(digits)


def _float(digits: str) -> float | int:
    """JSON has one kind of number: 3.0 may stand wherever 3 may."""
    value = float(digits)
    if math.isinf(value):
        raise ValueError("a number too large for a float")
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names a key twice")
    return found
