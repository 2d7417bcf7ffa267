"""Calibration of a spectrum: what its captions are like at every point, measured and kept in its card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from models.card import CARD_FILE, Calibration, Decoding, SpectrumCard, SpectrumPoint, dump_card
from models.catalog import CaptionerEntry
from models.errors import RequestError
from training.data.selection import Progress, Selection
from training.evaluate import Measured, Notify, evaluate_each
from training.evaluation.settings import EvaluationSettings, Subject
from training.report import write_text

METRICS = ("length", "lexical_diversity", "clip_score", "self_retrieval", "repetition", "content_words", "cider")
_WORDS = "mean_words"
_KEPT = ("clip_score", "r_at_1", "cider", "content_precision", "lexical_diversity", "repetition")


def calibrate(
    entry: CaptionerEntry,
    data: Selection,
    settings: EvaluationSettings,
    *,
    progress: Progress | None = None,
    notify: Notify | None = None,
) -> SpectrumCard:
    """Measure every point, write the numbers into the card and return it.

    Args:
        settings: with one scorer; its metrics are replaced.

    Raises:
        RequestError: the model is no spectrum, or there is not exactly one scorer.
        LimnerError: as ``evaluate_each`` does.
    """
    card = entry.card
    if not isinstance(card, SpectrumCard) or entry.path is None:
        raise RequestError("invalid_request", f"{entry.id!r} is no spectrum: make one with limner models spectrum")
    if len(settings.scorers) != 1:
        raise RequestError("invalid_request", "a spectrum is calibrated under exactly one scorer")
    subjects = [
        Subject(str(entry.path), label=f"{point.descriptiveness:.2f}", descriptiveness=point.descriptiveness)
        for point in card.grid
    ]
    found = evaluate_each(subjects, data, replace(settings, metrics=METRICS), progress=progress, notify=notify)
    grid = [_measured(point, numbers) for point, numbers in zip(card.grid, map(_numbers, found), strict=True)]
    context = found[0].evaluation.context
    calibration = Calibration(
        split=data.split,
        images=context["images"],
        decoding=Decoding(**context["decode"]),
        scorer=context["scorers"][0],
    )
    calibrated = card.model_copy(update={"grid": grid, "calibration": calibration})
    write_text(entry.path / CARD_FILE, dump_card(calibrated))
    return calibrated


def _numbers(measured: Measured) -> Mapping[str, float]:
    return {number.name: number.value for number in measured.evaluation.measurements}


def _measured(point: SpectrumPoint, numbers: Mapping[str, float]) -> SpectrumPoint:
    measures = {name: round(numbers[name], 4) for name in _KEPT if name in numbers}
    return point.model_copy(update={"expected_words": round(numbers[_WORDS], 3), "measures": measures})
