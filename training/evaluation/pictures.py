"""The pictures of an evaluation: those measured, and the others of the data set that metrics look at."""

from __future__ import annotations

from dataclasses import dataclass

from models.errors import DataError
from training.data import Example, read_dataset
from training.data.selection import Selection

_TRAINING = "train"


@dataclass(frozen=True)
class EvaluationPictures:
    """Pictures with their human captions."""

    measured: tuple[Example, ...]
    report: str
    """What was read of the data set, in a line."""
    training: tuple[Example, ...] = ()
    """Of the split ``train``, which ``restval`` has joined; their files may be absent where only captions matter."""
    distractors: tuple[Example, ...] = ()


def read_pictures(
    data: Selection, *, distractors: str | None = None, training_pictures: bool = False
) -> EvaluationPictures:
    """The pictures of ``data``, the training split and distractors.

    Args:
        distractors: the split that they come from, except those that are measured.
        training_pictures: the files of the training split are needed as well.

    Raises:
        RequestError: options that do not fit the format, or a limit below 1.
        DataError: the data cannot be used, or there are no distractors.
    """
    measured, report = data.read()
    looked_at = {*([distractors] if distractors else []), *([_TRAINING] if training_pictures else [])}
    options = data.options if looked_at else {**data.options, "on_missing": "keep"}
    splits = read_dataset(data.format, options, splits=looked_at).splits
    own = {example.source for example in measured}
    training = splits.get(_TRAINING, ())
    if training_pictures:  # as neighbours, measured pictures would give their own references away
        training = tuple(example for example in training if example.source not in own)
    others = tuple(example for example in splits.get(distractors or "", ()) if example.source not in own)
    if distractors and not others:
        raise DataError("no_data", f"split {distractors!r} has no images besides those measured: no distractors")
    return EvaluationPictures(measured, report.summary(), training, others)
