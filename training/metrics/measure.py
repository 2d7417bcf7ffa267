"""From captions to measurements: pairing with references, tokenising once, computing every metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from models.errors import DataError, RequestError
from training.metrics.interface import Measurement, Metric, MetricInputs, Need, ScorerFeatures, Tokenized, in_words
from training.metrics.tokenizer import Tokenizer

_SHOWN_IDS = 10
_OF_TOKENS: frozenset[Need] = frozenset({"references", "candidates"})


@dataclass(frozen=True)
class Paired:
    """One caption per image and its references, in the order of the references."""

    captions: dict[str, str]
    references: dict[str, tuple[str, ...]]
    duplicates: tuple[str, ...]
    """Ids that came more than once; their first caption counts."""


def pair(captions: Iterable[tuple[str, str]], references: Mapping[str, Sequence[str]]) -> Paired:
    """Captions (image id, text) matched with references.

    Raises:
        DataError: ``missing_ids`` when an image has no caption or a caption no references; the ids are listed.
            ``no_data`` when there are no images, or an image has an empty list of references.
    """
    first: dict[str, str] = {}
    duplicates: dict[str, None] = {}
    for image_id, text in captions:
        if image_id in first:
            duplicates[image_id] = None
        first.setdefault(image_id, text)
    missing = [image_id for image_id in references if image_id not in first]
    extra = [image_id for image_id in first if image_id not in references]
    if missing or extra:
        detail = f"images without a caption: {_listed(missing)}; captions without references: {_listed(extra)}"
        raise DataError("missing_ids", detail)
    bare = [image_id for image_id, texts in references.items() if not texts]
    if bare or not references:
        raise DataError("no_data", f"nothing to compare with; images with no reference: {_listed(bare)}")
    ordered = {image_id: first[image_id] for image_id in references}
    return Paired(ordered, {image_id: tuple(texts) for image_id, texts in references.items()}, tuple(duplicates))


def tokenize_pairs(
    paired: Paired,
    tokenizer: Tokenizer,
    *,
    candidates: Sequence[Sequence[str]] | None = None,
    training: Sequence[Sequence[str]] | None = None,
) -> Tokenized:
    """All texts cut by one call of the tokeniser.

    Args:
        candidates: the caption set of each image, in the order of ``paired``.
        training: the captions of each training image.
    """
    groups = [tuple(paired.captions.values()), *paired.references.values(), *(candidates or ()), *(training or ())]
    tokens = iter(tokenizer.tokenize([text for group in groups for text in group]))
    captions, *rest = (tuple(next(tokens) for _ in group) for group in groups)
    sets, known = len(paired.references), len(paired.references) + len(candidates or ())
    return Tokenized(
        tokenizer.name,
        captions,
        references=tuple(rest[:sets]),
        candidates=None if candidates is None else tuple(rest[sets:known]),
        training=None if training is None else tuple(rest[known:]),
    )


def check_needs(metrics: Mapping[str, Metric], given: Iterable[Need]) -> None:
    """Refuses metrics that need what the evaluation does not have, before any caption is generated.

    Raises:
        RequestError: ``unsupported_option``; the message names metric and need.
    """
    for name, metric in metrics.items():
        if lacking := metric.needs - set(given):
            raise RequestError(
                "unsupported_option", f"metric {name!r} needs {in_words(lacking)}, which this evaluation has not"
            )


def measure(
    metrics: Mapping[str, Metric], inputs: MetricInputs, features: Sequence[ScorerFeatures] = ()
) -> list[Measurement]:
    """Every number of every metric; metrics that need a scorer are computed once under each.

    Raises:
        RequestError: a metric's needs are not met.
        DataError: ``no_data`` without captions, ``not_finite`` when a metric gives nan or inf.
    """
    if not inputs.captions:
        raise DataError("no_data", "there are no captions to measure")
    under_each = [replace(inputs, features=scorer).gives for scorer in features or (None,)]
    check_needs(metrics, frozenset.intersection(*under_each))
    return [
        measurement
        for name, metric in metrics.items()
        for scorer in (features if "scorer" in metric.needs else (None,))
        for measurement in _compute(name, metric, replace(inputs, features=scorer))
    ]


def _compute(name: str, metric: Metric, inputs: MetricInputs) -> Iterable[Measurement]:
    definitions, notes = metric.definitions(), metric.notes(inputs)
    tokenized = inputs.tokenized if metric.needs & _OF_TOKENS else None
    for output, value in metric.compute(inputs).items():
        if not math.isfinite(value):
            raise DataError("not_finite", f"metric {name!r} gave {output} = {value}")
        yield Measurement(
            metric=name,
            name=output,
            value=value,
            definition=definitions[output].text,
            table_scale=definitions[output].table_scale,
            tokenizer=tokenized.tokenizer if tokenized else None,
            scorer=inputs.features.scorer if inputs.features else None,
            notes=notes,
        )


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:_SHOWN_IDS]) or "none"
    return f"{shown} and {len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else shown
