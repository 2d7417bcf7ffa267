"""From captions and pictures to what metrics are given."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from models.clip_scorer import ClipScorer
from training.evaluation.generation import pass_over
from training.evaluation.pictures import EvaluationPictures
from training.evaluation.writers import Written
from training.metrics.interface import MetricInputs, Need, ScorerFeatures
from training.metrics.measure import pair, tokenize_pairs
from training.metrics.tokenizer import Tokenizer

OF_TOKENS: frozenset[Need] = frozenset({"references", "candidates", "neighbours"})
"""Needs for which captions are cut into tokens."""


def metric_inputs(
    pictures: EvaluationPictures, written: Written, needs: frozenset[Need], tokenizer: Tokenizer | None
) -> MetricInputs:
    """What the captions and the data set give, as far as it is needed; features come on top."""
    examples = pictures.measured
    ids = tuple(example.image_id for example in examples)
    first = tuple(texts[0] for texts in written.texts)
    training = tuple(example.captions for example in pictures.training)
    tokenized = None
    if tokenizer is not None:
        tokenized = tokenize_pairs(
            pair(zip(ids, first, strict=True), {example.image_id: example.captions for example in examples}),
            tokenizer,
            candidates=written.texts if "candidates" in needs else None,
            training=training if "neighbours" in needs else None,
        )
    return MetricInputs(
        image_ids=ids,
        captions=first,
        tokenized=tokenized,
        finish_reasons=written.finish_reasons,
        candidates=written.texts if "candidates" in needs else None,
        training_captions=training or None,
        logprobs=written.logprobs,
    )


class PictureFeatures:
    """What one scorer makes of the pictures and the human captions: the same whoever's captions are measured."""

    def __init__(
        self,
        scorer: ClipScorer,
        images: torch.Tensor,
        pictures: EvaluationPictures,
        needs: frozenset[Need],
        batch_size: int,
    ) -> None:
        """Computes of the references, distractors and training pictures what is needed.

        Args:
            images: features (N, D) of the pictures that are measured.

        Raises:
            ImageError: a distractor or a training picture cannot be read.
        """
        self._scorer = scorer
        self._images = images
        self._references = self._encode_references(pictures) if "reference_features" in needs else None
        self._distractors, self._training = (
            pass_over(examples, batch_size, scorers=[scorer])[0] if need in needs else None
            for need, examples in (("distractors", pictures.distractors), ("neighbours", pictures.training))
        )

    def of(self, captions: Sequence[str]) -> ScorerFeatures:
        """The features, with those of the captions of the pictures."""
        return ScorerFeatures(
            scorer=self._scorer.scorer_id,
            prefix=self._scorer.prefix,
            weight=self._scorer.weight,
            images=self._images,
            texts=self._scorer.encode_texts(captions, prefix=False),
            prefixed_texts=self._scorer.encode_texts(captions, prefix=True),
            prefixed_references=self._references,
            distractors=self._distractors,
            training_images=self._training,
        )

    def _encode_references(self, pictures: EvaluationPictures) -> tuple[torch.Tensor, ...]:
        texts = [text for example in pictures.measured for text in example.captions]
        features = self._scorer.encode_texts(texts, prefix=True)
        return torch.split(features, [len(example.captions) for example in pictures.measured])
