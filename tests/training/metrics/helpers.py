"""Metric inputs from plain captions, and one-call computation by name."""

from collections.abc import Mapping, Sequence

import torch

from models.interfaces import FinishReason
from training.metrics import build_metrics
from training.metrics.interface import MetricInputs, ScorerFeatures
from training.metrics.measure import pair, tokenize_pairs
from training.metrics.tokenizer import PythonPtbTokenizer, Tokenizer


def texts(*captions: str) -> MetricInputs:
    """Captions alone."""
    return MetricInputs(tuple(str(index) for index in range(len(captions))), captions)


def paired(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]], tokenizer: Tokenizer | None = None
) -> MetricInputs:
    """Captions with tokenised references, by image id."""
    pairs = pair(captions.items(), references)
    tokenized = tokenize_pairs(pairs, tokenizer or PythonPtbTokenizer())
    return MetricInputs(tuple(pairs.captions), tuple(pairs.captions.values()), tokenized)


def ended(*reasons: FinishReason) -> MetricInputs:
    """Captions that ended so."""
    names = tuple("x" for _ in reasons)
    return MetricInputs(names, names, finish_reasons=reasons)


def scored(images: torch.Tensor, captions: torch.Tensor, prefixed: torch.Tensor | None = None) -> MetricInputs:
    """Captions known by their features (N, D) under a scorer of weight 2.5."""
    names = tuple(str(index) for index in range(len(images)))
    prefixed = captions if prefixed is None else prefixed
    features = ScorerFeatures("toy", "A photo depicts ", 2.5, images, captions, prefixed)
    return MetricInputs(names, names, features=features)


def compute(name: str, inputs: MetricInputs, **options: object) -> dict[str, float]:
    """What the metric called ``name`` returns."""
    return build_metrics([{"name": name, "options": options}])[name].compute(inputs)
