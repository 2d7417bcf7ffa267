"""A model as the command line asks for it: checked by its card at once, loaded when all else is in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.catalog import CaptionerEntry, find_captioner
from models.decoding import parse_decode
from models.decoding.strategy import Strategy
from models.errors import RequestError
from serving.points import Point, point_of

if TYPE_CHECKING:
    from models.pipeline import CaptionPipeline


@dataclass(frozen=True)
class Wish:
    """What was typed: a model, and at most one way to say where in its weight space."""

    model: str
    """An id, folder or hub id."""
    descriptiveness: float | None = None
    mix: Mapping[str, float] | None = None
    target_words: int | None = None


@dataclass(frozen=True)
class Choice:
    """The model that a wish names, where it captions, and how."""

    wish: Wish
    entry: CaptionerEntry
    point: Point
    strategy: Strategy
    models_dir: Path | None = None

    def load(self, *, scorer: str | None = None, device: str = "auto", dtype: str = "fp32") -> CaptionPipeline:
        """The pipeline. Raises as ``load_pipeline`` does."""
        from models.pipeline import load_pipeline  # deferred: torch

        return load_pipeline(
            self.wish.model,
            models_dir=self.models_dir,
            scorer=scorer,
            device=device,
            dtype=dtype,
            coefficients=None if self.point.coefficients is None else dict(self.point.coefficients),
        )


def choose(wish: Wish, decode: Mapping[str, Any] | None, models_dir: Path | None = None) -> Choice:
    """What a wish comes to; ``decode`` is as in a request, None the model's own. Loads no weights.

    Raises:
        UnknownNameError: there is no such model or direction.
        RequestError: as ``point_of`` and ``parse_decode``, or a descriptiveness beyond 0 to 1.
    """
    entry = find_captioner(wish.model, models_dir)
    if wish.descriptiveness is not None and not 0 <= wish.descriptiveness <= 1:  # NaN is not, either
        detail = f"descriptiveness {wish.descriptiveness:g} of model {entry.id!r} is not from 0 to 1"
        raise RequestError("invalid_request", detail)
    return Choice(
        wish, entry, point_of(entry.id, entry.card, wish), parse_decode(decode, entry.card.decoding), models_dir
    )
