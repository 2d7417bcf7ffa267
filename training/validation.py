"""What a captioner is worth on the validation split while it trains."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from models.clip_scorer import ClipScorer
from models.decoding.loop import decode
from models.decoding.strategy import Strategy
from models.families.base import TorchCaptioner
from training.batches import CaptionItems, collator
from training.data import Example
from training.features import FeatureCache
from training.metrics import build_metrics
from training.metrics.interface import MetricInputs, ScorerFeatures
from training.metrics.measure import measure, pair, tokenize_pairs
from training.metrics.tokenizer import choose_tokenizer
from training.objectives.mle import Mle

_IMAGES_PER_PASS = 50
_METRICS = ("bleu", "cider", "length", "lexical_diversity", "repetition", "cut")
_SCORED_METRICS = ("clip_score", "self_retrieval")


@dataclass(frozen=True)
class ValidationScorer:
    """A scorer, and the validation pictures under it."""

    scorer: ClipScorer
    images: Tensor
    """(N, D) features, not normalised."""

    def features(self, captions: Sequence[str]) -> ScorerFeatures:
        """The features that metrics read."""
        return ScorerFeatures(
            scorer=self.scorer.scorer_id,
            prefix=self.scorer.prefix,
            weight=self.scorer.weight,
            images=normalize(self.images, dim=-1),
            texts=self.scorer.encode_texts(captions, prefix=False),
            prefixed_texts=self.scorer.encode_texts(captions, prefix=True),
        )


class Validation:
    """Negative log-likelihood of the human captions, and the metrics of generated ones."""

    def __init__(
        self,
        items: CaptionItems,
        cache: FeatureCache,
        examples: Sequence[Example],
        strategy: Strategy,
        scorer: ValidationScorer | None = None,
    ) -> None:
        self._items = items
        self._cache = cache
        self._examples = examples
        self._strategy = strategy
        self._tokenizer = choose_tokenizer("auto")
        self._scorer = scorer

    @torch.no_grad()
    def run(self, captioner: TorchCaptioner) -> dict[str, float]:
        """Values by metric name; ``nll`` is per token, in nats. The captioner is in eval mode meanwhile."""
        was_training = captioner.training
        captioner.eval()
        try:
            return {"nll": self._nll(captioner), **self._caption(captioner)}
        finally:
            captioner.train(was_training)

    def _nll(self, captioner: TorchCaptioner) -> float:
        objective, total, count = Mle(Mle.Options()), 0.0, 0
        collate = collator(packed="packing" in captioner.capabilities)
        for start in range(0, len(self._items), _IMAGES_PER_PASS):
            stop = min(start + _IMAGES_PER_PASS, len(self._items))
            batch = collate([self._items[(0, index)] for index in range(start, stop)])["batch"]
            tokens = len(batch.captions.targets.labels)
            total += float(objective(captioner, batch).total) * tokens
            count += tokens
        return total / count

    def _caption(self, captioner: TorchCaptioner) -> dict[str, float]:
        found = []
        for start in range(0, len(self._cache), _IMAGES_PER_PASS):
            features = self._cache.batch(start, start + _IMAGES_PER_PASS)
            memory = captioner.encode_from_stem(features)
            found += [best for best, *_ in decode(captioner, memory, self._strategy, batch=len(features))]
        ids = tuple(example.image_id for example in self._examples)
        texts = tuple(captioner.detokenize(hypothesis.tokens) for hypothesis in found)
        references = {example.image_id: example.captions for example in self._examples}
        inputs = MetricInputs(
            image_ids=ids,
            captions=texts,
            tokenized=tokenize_pairs(pair(zip(ids, texts, strict=True), references), self._tokenizer),
            finish_reasons=tuple(hypothesis.finish_reason for hypothesis in found),
        )
        scored = [] if self._scorer is None else [self._scorer.features(texts)]
        metrics = build_metrics(_METRICS + _SCORED_METRICS if scored else _METRICS)
        return {measured.name: measured.value for measured in measure(metrics, inputs, scored)}
