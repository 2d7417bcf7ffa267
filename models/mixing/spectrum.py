"""Paths of mixes from the most concise to the most descriptive, and their cards. Loads no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from models.card import SpectrumCard, SpectrumPoint
from models.checkpoints import write_checkpoint
from models.errors import RequestError
from models.mixing.coefficients import check_coefficients
from models.mixing.mix import Mix
from models.mixing.references import reference_to

STEPS = 20
"""Intervals of the grid: a request's descriptiveness is rounded to 0.05."""

Anchors = Sequence[tuple[float, Mapping[str, float]]]


def path_through(anchors: Anchors, directions: Sequence[str]) -> list[SpectrumPoint]:
    """The grid of a spectrum: coefficients between two anchors lie on the straight line that joins them.

    Args:
        anchors: descriptiveness and coefficients, those that are not named 0. The base is at 0 where nothing else is.

    Raises:
        RequestError: ``invalid_request``; there is no anchor at 1, two are at one place, or one is off the grid; a
            coefficient is beyond the bound.
        UnknownNameError: ``unknown_name`` for a direction that there is not.
    """
    for _, mix in anchors:
        check_coefficients(mix, directions)
    placed = {round(place * STEPS): (place, mix) for place, mix in anchors}
    if len(placed) != len(anchors):
        raise RequestError("invalid_request", "two anchors of the spectrum are at the same descriptiveness")
    if odd := [place for number, (place, _) in placed.items() if abs(number / STEPS - place) > 1e-9]:
        raise RequestError("invalid_request", f"anchor {odd[0]:g} is off the grid: take a multiple of {1 / STEPS:g}")
    placed.setdefault(0, (0.0, {}))
    numbers = sorted(placed)
    if numbers[0] < 0 or numbers[-1] != STEPS:
        raise RequestError("invalid_request", "the anchors of a spectrum lie from 0 to 1, and one of them at 1")
    points = []
    for number in range(STEPS + 1):
        before = max(known for known in numbers if known <= number)
        after = min(known for known in numbers if known >= number)
        share = (number - before) / (after - before) if after > before else 0.0
        start, end = placed[before][1], placed[after][1]
        mixed = {name: round((1 - share) * start.get(name, 0.0) + share * end.get(name, 0.0), 4) for name in directions}
        used = {name: value for name, value in mixed.items() if value}
        points.append(SpectrumPoint(descriptiveness=round(number / STEPS, 2), coefficients=used))
    return points


def write_spectrum(folder: Path, mix: Mix, grid: Sequence[SpectrumPoint], default: float) -> SpectrumCard:
    """Write a folder with the card of a spectrum and return it; nothing is measured yet.

    Args:
        mix: base, directions and the description; its coefficients are not looked at.

    Raises:
        CheckpointError: the models do not fit, or their ids do not lead to them from ``folder``.
    """
    told = replace(mix, coefficients=dict.fromkeys(mix.directions, 1.0)).provenance()  # all of them have a part in it
    card = SpectrumCard(
        **(told | {"decoding": mix.base.card.decoding}),
        base=reference_to(mix.base, folder, mix.models_dir),
        directions={name: reference_to(entry, folder, mix.models_dir) for name, entry in mix.directions.items()},
        grid=list(grid),
        default=default,
    )
    mix.tensors()  # refuses now what could not be loaded later
    write_checkpoint(folder, lambda parts, files: card, {}, lambda draft: None)
    return card
