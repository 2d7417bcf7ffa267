"""Where the captions of an evaluation come from: a captioner, or a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from models.catalog import find_captioner, spectrum_point
from models.clip_scorer import ClipScorer
from models.decoding import parse_decode
from models.device import pick_device, pick_dtype
from models.interfaces import Caption, FinishReason
from models.pipeline import load_pipeline
from training.data import Example
from training.data.selection import Progress
from training.evaluation.captions_file import find_captions, read_captions
from training.evaluation.generation import Generator, pass_over
from training.evaluation.own_logprobs import caption_logprobs
from training.evaluation.pictures import EvaluationPictures
from training.evaluation.settings import EvaluationSettings, Subject
from training.metrics.interface import Need


@dataclass(frozen=True)
class Written:
    """Captions of every picture, and what was computed on the way."""

    texts: tuple[tuple[str, ...], ...]
    """Equally many of each picture, best first."""
    finish_reasons: tuple[FinishReason, ...] | None
    rows: tuple[Mapping[str, Any], ...]
    """Of ``captions.jsonl``."""
    features: list[torch.Tensor]
    """(N, D) of the pictures under each scorer that was asked."""
    logprobs: torch.Tensor | None = None
    timing: Mapping[str, Any] | None = None


class Writer(Protocol):
    """One source of captions, checked but not loaded."""

    name: str
    conditions: Mapping[str, Any]
    """What the captions depend on, for the record."""
    notes: tuple[str, ...]
    gives: frozenset[Need]
    """What metrics may need that not every source of captions has."""

    def write(self, scorers: Sequence[ClipScorer], progress: Progress | None, *, logprobs: bool) -> Written:
        """The captions, and the features of the pictures under ``scorers``, in one pass over the pictures."""


def open_writer(subject: Subject, pictures: EvaluationPictures, settings: EvaluationSettings) -> Writer:
    """The source that a subject names.

    Raises:
        UnknownNameError: there is no such captioner.
        RequestError: a decoding that does not exist, or cannot give as many captions.
        DataError: the file cannot be read, or lacks captions.
    """
    kind: type[_FileWriter] | type[_CaptionerWriter] = _FileWriter if subject.is_file else _CaptionerWriter
    return kind(subject, pictures, settings)


class _CaptionerWriter:
    notes: tuple[str, ...] = ()
    gives: frozenset[Need] = frozenset({"finish_reasons", "logprobs"})

    def __init__(self, subject: Subject, pictures: EvaluationPictures, settings: EvaluationSettings) -> None:
        entry = find_captioner(subject.source, settings.models_dir)
        self._strategy = parse_decode(subject.decode or settings.decode, entry.card.decoding)
        self._strategy.rows(settings.num_captions)  # refuses more captions than it can give
        dtype = pick_dtype(settings.dtype, pick_device(settings.device))
        self._point = None if subject.descriptiveness is None else spectrum_point(entry, subject.descriptiveness)
        self._model, self._pictures, self._settings = subject.source, pictures, settings
        self.name = subject.name(settings.models_dir)
        self.conditions: Mapping[str, Any] = {
            "model": subject.source,
            "decode": self._strategy.to_plain(),
            "dtype": str(dtype).removeprefix("torch."),
            **({"descriptiveness": self._point.descriptiveness} if self._point else {}),
        }

    def write(self, scorers: Sequence[ClipScorer], progress: Progress | None, *, logprobs: bool) -> Written:
        settings, examples = self._settings, self._pictures.measured
        pipeline = load_pipeline(
            self._model,
            models_dir=settings.models_dir,
            scorer=None,
            device=settings.device,
            dtype=settings.dtype,
            coefficients=self._point.coefficients if self._point else None,
        )
        generator = Generator(pipeline, self._strategy, settings.num_captions)
        features = pass_over(examples, settings.batch_size, scorers=scorers, generator=generator, progress=progress)
        best = [captions[0] for captions in generator.captions]
        matrix = None
        if logprobs:
            pool = [*examples, *self._pictures.distractors]
            matrix = caption_logprobs(pipeline.captioner, [caption.text for caption in best], pool, progress)
        return Written(
            texts=tuple(tuple(caption.text for caption in captions) for captions in generator.captions),
            finish_reasons=tuple(caption.finish_reason for caption in best),
            rows=tuple(map(_generated_row, examples, generator.captions)),
            features=features,
            logprobs=matrix,
            timing=generator.timing(),
        )


class _FileWriter:
    def __init__(self, subject: Subject, pictures: EvaluationPictures, settings: EvaluationSettings) -> None:
        path = Path(subject.source)
        self._found = find_captions(read_captions(path), pictures.measured, path, settings.num_captions)
        self._pictures, self._settings = pictures, settings
        self.name = subject.name(settings.models_dir)
        self.notes = self._found.notes
        self.gives: frozenset[Need] = frozenset({"finish_reasons"} if self._found.finish_reasons else ())
        self.conditions: Mapping[str, Any] = {"captions": str(path)}

    def write(self, scorers: Sequence[ClipScorer], progress: Progress | None, *, logprobs: bool) -> Written:
        assert not logprobs
        examples = self._pictures.measured
        return Written(
            texts=self._found.texts,
            finish_reasons=self._found.finish_reasons,
            rows=tuple(map(_row, examples, self._found.texts)),
            features=pass_over(examples, self._settings.batch_size, scorers=scorers, progress=progress),
        )


def _row(example: Example, texts: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"image_id": example.image_id, "file": example.file_name, "caption": texts[0]}
    return {**row, "candidates": list(texts)} if len(texts) > 1 else row


def _generated_row(example: Example, captions: Sequence[Caption]) -> dict[str, Any]:
    best = captions[0]
    return {
        **_row(example, [caption.text for caption in captions]),
        "logprob": best.logprob,
        "tokens": best.tokens,
        "finish_reason": best.finish_reason,
    }
