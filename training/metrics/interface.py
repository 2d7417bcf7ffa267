"""What a metric is given, what it declares and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    import torch

    from models.interfaces import FinishReason

Need = Literal[
    "references",
    "finish_reasons",
    "candidates",
    "training_captions",
    "logprobs",
    "scorer",
    "reference_features",
    "distractors",
    "neighbours",
]
HOW_TO_MEET: dict[Need, str] = {
    "references": "human captions of each image",
    "finish_reasons": "captions by a model, or lines with finish_reason",
    "candidates": "several captions of each image (--num-captions)",
    "training_captions": "a data set with captions of a split train",
    "logprobs": "the captioner itself",
    "scorer": "a scorer (--scorer)",
    "reference_features": "human captions as a scorer reads them",
    "distractors": "more images in the pool (--distractors)",
    "neighbours": "training pictures as a scorer sees them",
}
"""Each need in words for people, and the option that meets it."""
Resampler = Callable[[Sequence[int]], dict[str, float]]
"""From indices of images, repeats allowed, to the numbers of a metric on that sample of the images."""

T = TypeVar("T")


def in_words(needs: Iterable[Need]) -> str:
    """Needs by name, each with what meets it."""
    return "; ".join(f"{need}: {HOW_TO_MEET[need]}" for need in sorted(needs))


@dataclass(frozen=True)
class Tokenized:
    """Texts as space-joined tokens of one tokeniser: what ``MetricInputs`` holds as they are."""

    tokenizer: str
    captions: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    candidates: tuple[tuple[str, ...], ...] | None = None
    training: tuple[tuple[str, ...], ...] | None = None
    """The captions of each training image."""

    def take(self, indices: Sequence[int]) -> Tokenized:
        """The texts of these images, in this order."""
        candidates = self.candidates and _taken(self.candidates, indices)
        captions, references = _taken(self.captions, indices), _taken(self.references, indices)
        return replace(self, captions=captions, references=references, candidates=candidates)


@dataclass(frozen=True)
class ScorerFeatures:
    """Unit features (N, D) of the images and of their captions under one scorer."""

    scorer: str
    prefix: str
    weight: float
    images: torch.Tensor
    texts: torch.Tensor
    """The captions as they are: what retrieval uses."""
    prefixed_texts: torch.Tensor
    """The captions after the scorer's prefix: what CLIPScore uses."""
    prefixed_references: tuple[torch.Tensor, ...] | None = None
    """For each image the features (R, D) of its references after the scorer's prefix."""
    distractors: torch.Tensor | None = None
    """Images (M, D) that no caption was written for, which join the pool of retrieval."""
    training_images: torch.Tensor | None = None
    """The training images (M, D), in the order of the training captions."""

    def take(self, indices: Sequence[int]) -> ScorerFeatures:
        """The features of these images, in this order; distractors and training images stay as they are."""
        rows = list(indices)
        references = self.prefixed_references and _taken(self.prefixed_references, rows)
        return replace(
            self,
            images=self.images[rows],
            texts=self.texts[rows],
            prefixed_texts=self.prefixed_texts[rows],
            prefixed_references=references,
        )


@dataclass(frozen=True)
class MetricInputs:
    """N images with one caption each, all in the same order; what was not given is None."""

    image_ids: tuple[str, ...]
    captions: tuple[str, ...]
    tokenized: Tokenized | None = None
    finish_reasons: tuple[FinishReason, ...] | None = None
    features: ScorerFeatures | None = None
    candidates: tuple[tuple[str, ...], ...] | None = None
    """For each image a set of captions, equally many for all, best first; ``tokenized`` holds their tokens."""
    training_captions: tuple[tuple[str, ...], ...] | None = None
    """The captions of each image that the captioner was trained on."""
    logprobs: torch.Tensor | None = None
    """log p(caption i | image j) in nats, (N, N + M): first the N images in this order, then M distractors."""

    @property
    def gives(self) -> frozenset[Need]:
        """The needs that these inputs meet."""
        tokens, features = self.tokenized, self.features
        given: dict[Need, Any] = {
            "references": (tokens and tokens.references) or None,
            "finish_reasons": self.finish_reasons,
            "candidates": tokens and self.candidates and tokens.candidates,
            "training_captions": self.training_captions,
            "logprobs": self.logprobs,
            "scorer": features,
            "reference_features": features and features.prefixed_references,
            "distractors": features and features.distractors,
            "neighbours": features and tokens and tokens.training and features.training_images,
        }
        return frozenset(need for need, value in given.items() if value is not None)

    def take(self, indices: Sequence[int]) -> MetricInputs:
        """The same for these images only, in this order; an index may come more than once.

        The pool of retrieval is then these images and the distractors. Training captions stay as they are.
        """
        rows = list(indices)
        return replace(
            self,
            image_ids=_taken(self.image_ids, rows),
            captions=_taken(self.captions, rows),
            tokenized=self.tokenized and self.tokenized.take(rows),
            finish_reasons=self.finish_reasons and _taken(self.finish_reasons, rows),
            features=self.features and self.features.take(rows),
            candidates=self.candidates and _taken(self.candidates, rows),
            logprobs=None if self.logprobs is None else self._taken_logprobs(self.logprobs, rows),
        )

    def _taken_logprobs(self, logprobs: torch.Tensor, rows: list[int]) -> torch.Tensor:
        columns = [*rows, *range(len(self.image_ids), logprobs.shape[1])]
        return logprobs[rows][:, columns]


@dataclass(frozen=True)
class Definition:
    """What a number means, for the reader of a table."""

    text: str
    table_scale: float = 1.0
    """Tables show the value times this, as the literature does: 100 for shares, BLEU and CIDEr."""
    over_images: Literal["mean", "median", "corpus"] = "corpus"
    """The number is the mean or the median of what ``Metric.per_image`` gives; ``corpus``: no such values exist."""


@dataclass(frozen=True)
class Measurement:
    """One number with what is needed to read it."""

    metric: str
    name: str
    value: float
    definition: str
    table_scale: float
    tokenizer: str | None
    scorer: str | None
    notes: tuple[str, ...]


class Metric(ABC):
    """One file per metric; the evaluation knows none by name.

    ``training.metrics.kinds`` has bases for the two kinds: means over images, and numbers of all the images at once.
    """

    needs: frozenset[Need] = frozenset()
    uses_java: ClassVar[bool] = False

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

    def __init__(self, options: Any = None) -> None:
        self.options: Any = self.Options() if options is None else options

    @abstractmethod
    def definitions(self) -> Mapping[str, Definition]:
        """The definition of every number that ``compute`` returns."""

    @abstractmethod
    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        """The numbers by name, all finite; ``inputs`` gives at least what ``needs`` lists."""

    def per_image(self, inputs: MetricInputs) -> Mapping[str, Sequence[float]]:
        """For every number whose definition is ``mean`` or ``median``, the N values that it is taken over.

        A paired test of two captioners compares these. Numbers of the corpus have none.
        """
        return {}

    def caption_scores(self, inputs: MetricInputs) -> Mapping[str, Sequence[float]]:
        """For every number, its value on each caption alone: what the best of several captions is chosen by.

        Empty where the metric is not defined on one caption.
        """
        return self.per_image(inputs)

    def resampler(self, inputs: MetricInputs) -> Resampler:
        """A function that computes the numbers on samples of the images: for bootstrap intervals.

        What depends on all images together stays as it is in ``inputs``: the idf of CIDEr, the pool of retrieval.
        """
        return lambda indices: self.compute(inputs.take(indices))

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        """What a reader of these numbers must be told about these inputs."""
        return ()


def _taken(items: Sequence[T], indices: Sequence[int]) -> tuple[T, ...]:
    return tuple(items[index] for index in indices)
