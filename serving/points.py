"""Where in the weight space of a model a request is answered: from what it asks to coefficients. Loads no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from models.card import CaptionerCard, MixCard, SpectrumCard, SpectrumPoint
from models.errors import RequestError
from models.mixing.coefficients import check_coefficients

Coefficients = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Point:
    """A place in the weight space of a model, and what calibration says of captions there."""

    coefficients: Coefficients | None = None
    """By direction, in alphabetical order, without those that are 0; None: the model as its card has it."""
    descriptiveness: float | None = None
    expected_words: float | None = None
    expected_clip_score: float | None = None


class Knobs(Protocol):
    """What a request may say of it; at most one is not None."""

    @property
    def descriptiveness(self) -> float | None: ...
    @property
    def mix(self) -> Mapping[str, float] | None: ...
    @property
    def target_words(self) -> int | None: ...


_NAMES = ("descriptiveness", "mix", "target_words")


def point_of(model: str, card: CaptionerCard, asked: Knobs) -> Point:
    """Where to answer; a spectrum has a default for who asks for nothing.

    Raises:
        RequestError: ``invalid_request`` for two of them at once or a coefficient out of bounds; ``unsupported_option``
            for a model without a spectrum or directions, or one that was never calibrated.
        UnknownNameError: a direction that there is not.
    """
    given = [name for name in _NAMES if getattr(asked, name) is not None]
    if len(given) > 1:
        raise RequestError("invalid_request", f"{' and '.join(given)}: at most one of {', '.join(_NAMES)} can be given")
    if given == ["mix"]:
        if not isinstance(card, MixCard | SpectrumCard):
            raise RequestError("unsupported_option", f"mix: model {model!r} has no directions")
        assert asked.mix is not None
        return Point(_sorted(check_coefficients(asked.mix, card.directions)))
    if isinstance(card, SpectrumCard):
        return _of_spectrum(model, card, asked)
    if given:
        raise RequestError("unsupported_option", f"{given[0]}: model {model!r} has no spectrum")
    return Point()


def concise_end(card: CaptionerCard) -> Point | None:
    """The point that captions fall back to; None for a model without a spectrum."""
    return _at(card.grid[0]) if isinstance(card, SpectrumCard) else None


def calibrated_words(card: CaptionerCard) -> tuple[float, float]:
    """The fewest and the most mean words that a calibrated spectrum can be asked for."""
    known = (
        [point.expected_words for point in card.grid if point.expected_words] if isinstance(card, SpectrumCard) else []
    )
    return min(known, default=0.0), max(known, default=math.inf)


def _of_spectrum(model: str, card: SpectrumCard, asked: Knobs) -> Point:
    if asked.target_words is None:
        return _at(card.nearest(card.default if asked.descriptiveness is None else asked.descriptiveness))
    known = [point for point in card.grid if point.expected_words is not None]
    if not known:
        raise RequestError("unsupported_option", f"target_words: model {model!r} was never calibrated")
    wanted = asked.target_words
    return _at(min(known, key=lambda point: abs((point.expected_words or 0.0) - wanted)))


def _at(point: SpectrumPoint) -> Point:
    return Point(
        coefficients=_sorted({name: value for name, value in point.coefficients.items() if value}),
        descriptiveness=point.descriptiveness,
        expected_words=point.expected_words,
        expected_clip_score=point.measures.get("clip_score"),
    )


def _sorted(coefficients: Mapping[str, float]) -> Coefficients:
    return tuple(sorted(coefficients.items()))
