"""Evaluation of captioners: captions for a split, then every metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from models.clip_scorer import load_scorer
from models.device import pick_device
from models.errors import RequestError
from training.data.selection import Progress, Selection
from training.evaluation.inputs import OF_TOKENS, PictureFeatures, metric_inputs
from training.evaluation.metric_choice import MetricChoice
from training.evaluation.pictures import read_pictures
from training.evaluation.settings import EvaluationSettings, Subject
from training.evaluation.writers import Writer, open_writer
from training.git_revision import git_revision
from training.metrics.interface import Metric, MetricInputs, Need, ScorerFeatures
from training.metrics.measure import measure
from training.metrics.tokenizer import choose_tokenizer
from training.report import Evaluation

Notify = Callable[[str], None]
"""Called with a line on what will take long, before it begins."""


@dataclass(frozen=True)
class Measured:
    """An evaluation and what its numbers were computed from."""

    evaluation: Evaluation
    metrics: Mapping[str, Metric]
    inputs: MetricInputs
    features: tuple[ScorerFeatures, ...]

    def computations(self) -> Iterator[tuple[Metric, MetricInputs]]:
        """Every metric with its inputs, once under each scorer where it needs one."""
        for metric in self.metrics.values():
            for features in self.features if "scorer" in metric.needs else (None,):
                yield metric, replace(self.inputs, features=features)


def evaluate(
    subject: str | Subject,
    data: Selection,
    settings: EvaluationSettings | None = None,
    *,
    progress: Progress | None = None,
    notify: Notify | None = None,
) -> Evaluation:
    """The metrics of a captioner, or of captions in a file, on one split.

    Raises:
        LimnerError: whatever is wrong with names, options, data, images or weights. All but images and weights is
            checked before the first caption is generated, Java included.
    """
    subject = Subject(subject) if isinstance(subject, str) else subject
    (measured,) = evaluate_each([subject], data, settings or EvaluationSettings(), progress=progress, notify=notify)
    return measured.evaluation


def evaluate_each(
    subjects: Sequence[Subject],
    data: Selection,
    settings: EvaluationSettings,
    *,
    progress: Progress | None = None,
    notify: Notify | None = None,
) -> list[Measured]:
    """Each subject on the same pictures by the same metrics: those that all of them allow.

    One captioner is loaded at a time. Raises as ``evaluate`` does; RequestError for two subjects of one name.
    """
    return list(_Bench(subjects, data, settings, progress, notify or (lambda line: None)).measure_all())


class _Bench:
    """The pictures, scorers and metrics of all subjects."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        data: Selection,
        settings: EvaluationSettings,
        progress: Progress | None,
        notify: Notify,
    ) -> None:
        self._data, self._settings, self._progress, self._notify = data, settings, progress, notify
        choice = MetricChoice(settings.metrics, distractors=settings.distractors is not None)
        self._pictures = read_pictures(
            data, distractors=settings.distractors, training_pictures="neighbours" in choice.needs
        )
        self._writers = [open_writer(subject, self._pictures, settings) for subject in subjects]
        _refuse_equal_names([writer.name for writer in self._writers])
        self._common = frozenset.intersection(*(writer.gives for writer in self._writers))
        self._metrics, self._left_out = choice.choose(self._given(), self._on_demand())
        self._needs: frozenset[Need] = frozenset().union(*(metric.needs for metric in self._metrics.values()))
        self._tokenizer = choose_tokenizer(settings.tokenizer) if self._needs & OF_TOKENS else None
        self._scorers = [
            load_scorer(ref, models_dir=settings.models_dir, device=settings.device) for ref in settings.scorers
        ]
        self._features: list[PictureFeatures] | None = None

    def measure_all(self) -> Iterator[Measured]:
        """Each subject in turn."""
        for number, writer in enumerate(self._writers, 1):
            if len(self._writers) > 1:
                self._notify(f"{number} of {len(self._writers)}: {writer.name}")
            yield self._measure(writer)

    def _given(self) -> frozenset[Need]:
        """What metrics may use without being asked for."""
        given: set[Need] = {"references", *(self._common & {"finish_reasons"})}
        if self._settings.num_captions > 1:
            given.add("candidates")
        if self._pictures.training:
            given.add("training_captions")
        if self._settings.scorers:
            given |= {"scorer", "reference_features"}
        if self._settings.scorers and self._pictures.distractors:
            given.add("distractors")
        return frozenset(given)

    def _on_demand(self) -> frozenset[Need]:
        """What costs far more than the captions do."""
        costly: set[Need] = {*(self._common & {"logprobs"})}
        if self._settings.scorers and self._pictures.training:
            costly.add("neighbours")
        return frozenset(costly)

    def _measure(self, writer: Writer) -> Measured:
        logprobs = "logprobs" in self._needs
        if logprobs:
            captions = len(self._pictures.measured)
            pool = captions + len(self._pictures.distractors)
            self._notify(f"{writer.name} scores {captions} captions on {pool} pictures: {captions * pool:,} scorings")
        missing = self._scorers if self._features is None else []
        written = writer.write(missing, self._progress, logprobs=logprobs)
        if self._features is None:
            self._features = self._all_features(written.features)
        inputs = metric_inputs(self._pictures, written, self._needs, self._tokenizer)
        features = tuple(of.of(inputs.captions) for of in self._features)
        numbers = tuple(measure(self._metrics, inputs, features))
        evaluation = Evaluation(writer.name, self._context(writer), numbers, written.rows, written.timing or {})
        return Measured(evaluation, self._metrics, inputs, features)

    def _all_features(self, images: Sequence[torch.Tensor]) -> list[PictureFeatures]:
        others = [
            f"{len(examples)} {what}"
            for need, what, examples in (
                ("distractors", "distractors", self._pictures.distractors),
                ("neighbours", "training pictures", self._pictures.training),
            )
            if need in self._needs
        ]
        if others and self._scorers:
            names = ", ".join(scorer.scorer_id for scorer in self._scorers)
            self._notify(f"features of {' and '.join(others)} under {names}")
        size = self._settings.batch_size
        return [
            PictureFeatures(scorer, of, self._pictures, self._needs, size)
            for scorer, of in zip(self._scorers, images, strict=True)
        ]

    def _context(self, writer: Writer) -> dict[str, Any]:
        """What the numbers depend on; no times or dates, so that equal runs give equal files."""
        settings, pictures = self._settings, self._pictures
        context = {
            **writer.conditions,
            "num_captions": settings.num_captions,
            "split": self._data.split,
            "images": len(pictures.measured),
            "distractors": {settings.distractors: len(pictures.distractors)} if settings.distractors else None,
            "scorers": [scorer.scorer_id for scorer in self._scorers],
            "tokenizer": self._tokenizer.name if self._tokenizer else None,
            "data": self._data.describe(),
            "data_report": pictures.report,
            "device": str(pick_device(settings.device)),
            "batch_size": settings.batch_size,
            "threads": torch.get_num_threads(),
            "git_revision": git_revision(),
            "notes": list(writer.notes),
            "left_out": self._left_out,
        }
        return {name: value for name, value in context.items() if value not in (None, [], {})}


def _refuse_equal_names(names: Sequence[str]) -> None:
    twice = [name for index, name in enumerate(names) if name in names[:index]]
    if twice:
        raise RequestError("invalid_request", f"two of the models are called {twice[0]!r}: name them by labels")
