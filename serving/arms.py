"""The ways to caption that a comparison sets side by side: how many there may be, and what they are called."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.errors import RequestError
from serving.points import Knobs

FEWEST_ARMS = 2
MOST_ARMS = 6


def describe(model: str, knobs: Knobs, decode: Mapping[str, Any] | None = None) -> str:
    """What an arm without a label is called: its model and what is asked of it, such as ``dial@0.25 sample``.

    Args:
        decode: as in a request; None is the model's own decoding.
    """
    where = "" if knobs.descriptiveness is None else f"@{knobs.descriptiveness:g}"
    words = [model + where]
    words += [f"{'-' if value < 0 else '+'} {abs(value):g} {name}" for name, value in (knobs.mix or {}).items()]
    if knobs.target_words is not None:
        words.append(f"{knobs.target_words} words")
    given = {key: value for key, value in (decode or {}).items() if value is not None}
    words += [str(given["name"])] if "name" in given else []
    words += [f"{name}={value}" for name, value in given.get("options", {}).items()]
    words += [f"guidance {given['guidance']:g}"] if "guidance" in given else []
    words += [f"by {given['rerank']}"] if "rerank" in given else []
    return " ".join(words)


def label_arms(given: Sequence[str | None], described: Sequence[str]) -> list[str]:
    """A label for each arm, all of them different: the given one, or the description, with a number where it is taken.

    Raises:
        RequestError: ``invalid_request`` for a label that is given twice.
    """
    taken = [label for label in given if label is not None]
    if twice := [label for label in taken if taken.count(label) > 1]:
        raise RequestError("invalid_request", f"arms: the label {twice[0]!r} is given twice")
    labels = []
    for label, description in zip(given, described, strict=True):
        number, free = 1, description
        while label is None and free in taken:
            number += 1
            free = f"{description} ({number})"
        labels.append(free if label is None else label)
        taken.append(labels[-1])
    return labels


def check_arm_count(arms: int) -> None:
    """Raise ``invalid_request`` for fewer or more arms than a comparison takes."""
    if not FEWEST_ARMS <= arms <= MOST_ARMS:
        raise RequestError("invalid_request", f"arms: {arms} given; {FEWEST_ARMS} to {MOST_ARMS} can be compared")
