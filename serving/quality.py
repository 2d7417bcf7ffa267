"""What the monitor knows of the captions' quality, model by model: words, diversity, repetition, CLIPScore drift."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from models.text_stats import repeats_ngram, words
from serving.drift import DriftDetector, DriftOptions, ScoreBaseline

DIVERSITY_CAPTIONS = 500
"""Lexical diversity grows with the number of captions; values compare because all are of this many."""
MOST_MODELS = 64
OTHER_MODELS = "other"
"""Stands for every model beyond the first ``MOST_MODELS``, so that the number of series is bounded."""
MAX_TEXT_CHARACTERS = 2000
"""What a report tells of a caption."""


@dataclass(frozen=True)
class QualitySample:
    """The best caption of one image. Text and score may come one after the other, from different processes."""

    model: str
    text: str | None = None
    clip_score: float | None = None
    expected_clip_score: float | None = None
    """What calibration found at the served point; None where there is no such number."""
    usual: bool = True
    """Whether the model's own decoding and weights made it. Others may score lower without anything being wrong."""


@dataclass(frozen=True)
class ModelGauges:
    """The state of one model; None while there are too few captions or scores to tell."""

    lexical_diversity: int | None
    repetition_ratio: float | None
    drift_sd: float | None
    drift_alarm: bool


class Quality:
    """Takes samples, tells each model's gauges."""

    def __init__(self, drift: DriftOptions | None = None, baselines: Mapping[str, ScoreBaseline] | None = None) -> None:
        self._drift = drift or DriftOptions()
        self._baselines = baselines or {}
        self._models: dict[str, _ModelState] = {}

    def add(self, sample: QualitySample) -> tuple[str, int | None]:
        """The model's label, and the words of the text if there is one."""
        label, state = self._state(sample.model)
        if sample.clip_score is not None and sample.usual:
            state.drift.add(sample.clip_score - (sample.expected_clip_score or 0.0))
        return label, None if sample.text is None else state.texts.add(sample.text)

    def gauges(self) -> Iterator[tuple[str, ModelGauges]]:
        """Every model that was seen, and its state."""
        for label, state in self._models.items():
            texts, drift = state.texts, state.drift
            yield label, ModelGauges(texts.distinct_words, texts.repetition_ratio, drift.statistic, drift.alarm)

    def _state(self, model: str) -> tuple[str, "_ModelState"]:
        if model not in self._models and len(self._models) >= MOST_MODELS:
            model = OTHER_MODELS
        if model not in self._models:
            self._models[model] = _ModelState(DriftDetector(self._drift, self._baselines.get(model)), RollingTexts())
        return model, self._models[model]


@dataclass(frozen=True)
class _ModelState:
    drift: DriftDetector
    texts: "RollingTexts"


class RollingTexts:
    """Statistics of the last ``size`` captions, kept as they come and go."""

    def __init__(self, size: int = DIVERSITY_CAPTIONS) -> None:
        self._size = size
        self._last: deque[tuple[list[str], bool]] = deque()
        self._uses: Counter[str] = Counter()
        self._repeating = 0

    def add(self, text: str) -> int:
        """The words of the text, which now counts; the oldest may no longer."""
        found = words(text)
        repeats = repeats_ngram(text)
        self._last.append((found, repeats))
        self._uses.update(found)
        self._repeating += repeats
        if len(self._last) > self._size:
            self._forget(*self._last.popleft())
        return len(found)

    @property
    def distinct_words(self) -> int | None:
        """As ``models.text_stats.distinct_words`` of the last ``size`` captions; None before there are so many."""
        return len(self._uses) if len(self._last) == self._size else None

    @property
    def repetition_ratio(self) -> float | None:
        """Share, 0 to 1, of the captions that repeat three words in a row; None before the first one."""
        return self._repeating / len(self._last) if self._last else None

    def _forget(self, found: list[str], repeats: bool) -> None:
        self._repeating -= repeats
        self._uses.subtract(found)
        for word in found:
            if self._uses[word] <= 0:
                del self._uses[word]
