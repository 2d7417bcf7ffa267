"""Self-retrieval by the captioner itself: how likely it finds its caption under other pictures."""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field

from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import ImageMetric
from training.metrics.retrieval import AT, define, per_query, ranks_of_own

_PREFIX = "own_"

# Log-probabilities of whole captions, in nats: equal pictures differ by rounding.
_EQUAL = 1e-4


class OwnRetrieval(ImageMetric):
    """Images ranked by the captioner's p(caption | image), as in contrastive learning (Dai and Lin 2017)."""

    needs = frozenset({"logprobs"})

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        at: tuple[int, ...] = Field(default=AT, min_length=1)
        """The k of R@k; the paper gives 1, 5, 50 and 500 of 5,000 images."""

    def definitions(self) -> dict[str, Definition]:
        query, by = "captions (pool = the images scored)", "the captioner's own log p(caption | image)"
        return {_PREFIX + name: text for name, text in define(query, by, self.options.at).items()}

    def per_image(self, inputs: MetricInputs) -> dict[str, list[float]]:
        assert inputs.logprobs is not None
        ranks = ranks_of_own(inputs.logprobs, torch.arange(len(inputs.logprobs)), _EQUAL)
        return {_PREFIX + name: values for name, values in per_query(ranks, self.options.at).items()}

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        assert inputs.logprobs is not None
        return (f"pool of {inputs.logprobs.shape[1]} images",)
