"""Consensus re-ranking: of an image's captions those first that suit the training captions of similar images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from models.errors import RequestError
from training.metrics import build_metrics
from training.metrics.interface import Definition, Metric, MetricInputs, Need, Resampler
from training.metrics.ngram_vectors import Idf, NgramVector, cider_d

T = TypeVar("T")

_PREFIX = "consensus_"
_INNER_NEEDS: frozenset[Need] = frozenset({"references", "candidates", "training_captions"})


class Consensus(Metric):
    """Other metrics after consensus re-ranking (Mao et al. 2015): of the first caption, or of the set of the best."""

    needs = frozenset({"candidates", "references", "scorer", "neighbours"})

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        neighbours: int = Field(default=60, ge=1)
        """Most similar training images, whose captions are pooled."""
        top: int = Field(default=125, ge=1)
        """Most similar pooled captions, whose similarities are summed."""
        keep: int = Field(default=5, ge=2)
        """Captions of each image that are left."""
        metrics: list[str | dict[str, Any]] = Field(
            default=["bleu", "cider", "rouge_l", "div", "mbleu", "self_cider"], min_length=1
        )

    def __init__(self, options: Any = None) -> None:
        """Builds the metrics.

        Raises:
            RequestError: ``unsupported_option``, one of them needs what belongs to the captions before re-ranking.
        """
        super().__init__(options)
        self._metrics = build_metrics(self.options.metrics)
        for name, metric in self._metrics.items():
            if not metric.needs <= _INNER_NEEDS:
                raise RequestError("unsupported_option", f"metric 'consensus' cannot compute {name!r}")
            self.needs |= metric.needs

    def definitions(self) -> dict[str, Definition]:
        options = self.options
        text = f"after consensus re-ranking (k {options.neighbours}, m {options.top}, {options.keep} kept): "
        return {
            _PREFIX + name: replace(definition, text=text + definition.text)
            for metric in self._metrics.values()
            for name, definition in metric.definitions().items()
        }

    def compute(self, inputs: MetricInputs) -> dict[str, float]:
        ranked = self.rerank(inputs)
        return _prefixed(metric.compute(ranked) for metric in self._metrics.values())

    def per_image(self, inputs: MetricInputs) -> Mapping[str, Sequence[float]]:
        ranked = self.rerank(inputs)
        return _prefixed(metric.per_image(ranked) for metric in self._metrics.values())

    def resampler(self, inputs: MetricInputs) -> Resampler:
        ranked = self.rerank(inputs)
        samplers = [metric.resampler(ranked) for metric in self._metrics.values()]
        return lambda indices: _prefixed(sample(indices) for sample in samplers)

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        assert inputs.features is not None and inputs.features.training_images is not None
        return (f"{len(inputs.features.training_images)} training images, idf from their captions",)

    def rerank(self, inputs: MetricInputs) -> MetricInputs:
        """The inputs with each image's best candidates, best first, and the first of them as its caption."""
        assert inputs.tokenized is not None and inputs.candidates is not None
        assert inputs.tokenized.candidates is not None
        orders = [order[: self.options.keep] for order in self._orders(inputs)]
        texts, tokens = _picked(inputs.candidates, orders), _picked(inputs.tokenized.candidates, orders)
        tokenized = replace(inputs.tokenized, captions=tuple(of[0] for of in tokens), candidates=tokens)
        return replace(inputs, captions=tuple(of[0] for of in texts), candidates=texts, tokenized=tokenized)

    def _orders(self, inputs: MetricInputs) -> Iterator[list[int]]:
        """For each image its candidates from best to worst; equal ones stay in order."""
        assert inputs.tokenized is not None and inputs.features is not None
        candidates, training = inputs.tokenized.candidates, inputs.tokenized.training
        images, pool = inputs.features.images, inputs.features.training_images
        assert candidates is not None and training is not None and pool is not None
        idf = Idf(training)
        for captions, image in zip(candidates, images, strict=True):
            nearest = (pool @ image).topk(min(self.options.neighbours, len(pool))).indices.tolist()
            pooled = [idf.vector(caption) for neighbour in nearest for caption in training[neighbour]]
            scores = consensus_scores([idf.vector(caption) for caption in captions], pooled, self.options.top)
            yield np.argsort(-scores, kind="stable").tolist()


def consensus_scores(candidates: Sequence[NgramVector], pooled: Sequence[NgramVector], top: int) -> np.ndarray:
    """For each candidate (C,) the sum of its ``top`` greatest CIDEr-D similarities to the pooled captions."""
    similarities = np.sort(cider_d(candidates, pooled), axis=1)[:, ::-1]  # (C, R), falling
    total: np.ndarray = similarities[:, :top].sum(axis=1)
    return total


def _prefixed(parts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    return {_PREFIX + name: value for part in parts for name, value in part.items()}


def _picked(sets: Sequence[Sequence[str]], orders: Sequence[Sequence[int]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(of[index] for index in order) for of, order in zip(sets, orders, strict=True))
