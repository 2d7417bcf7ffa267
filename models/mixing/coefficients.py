"""How far a mix goes along each direction. Loads no torch."""

from collections.abc import Iterable, Mapping

from models.card import MAX_COEFFICIENT
from models.errors import RequestError, UnknownNameError


def check_coefficients(coefficients: Mapping[str, float], directions: Iterable[str]) -> dict[str, float]:
    """The coefficients other than 0, by name in alphabetical order: what a mix adds up, and in which order.

    Raises:
        UnknownNameError: ``unknown_name`` for a direction that there is not, listing those there are.
        RequestError: ``invalid_request`` for a coefficient that is not finite or beyond the bound.
    """
    known = sorted(directions)
    for name, value in coefficients.items():
        if name not in known:
            raise UnknownNameError("unknown_name", f"no direction {name!r}; there are: {', '.join(known) or 'none'}")
        if not -MAX_COEFFICIENT <= value <= MAX_COEFFICIENT:  # NaN is not, either
            raise RequestError(
                "invalid_request",
                f"coefficient {value} of direction {name!r} is not from {-MAX_COEFFICIENT:g} to {MAX_COEFFICIENT:g}",
            )
    return {name: coefficients[name] for name in known if coefficients.get(name)}
