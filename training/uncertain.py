"""Captions by how sure a scorer is of the picture they belong to (UNKT: Fei and Huang 2023, eq. 3)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import normalize

from models.clip_scorer import ClipScorer
from training.data import Example

_TEXTS_PER_PASS = 512


class UncertainPairs(BaseModel):
    """Which image-caption pairs to keep, by the entropy of the retrieval of the caption."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scorer: str = "scorer"
    fraction: float = Field(default=0.5, gt=0, le=1)
    keep: Literal["highest", "lowest"] = "highest"
    """Captions that fit many pictures, or those that fit few."""


def keep_pairs(
    examples: Sequence[Example], pairs: UncertainPairs, scorer: ClipScorer, images: Tensor
) -> tuple[Example, ...]:
    """The examples with the captions that are kept; examples without any are left out.

    Args:
        images: (N, D) features of the examples under the scorer.
    """
    texts = [caption for example in examples for caption in example.captions]
    entropy = retrieval_entropy(scorer, texts, images)
    count = max(1, round(pairs.fraction * len(texts)))
    kept = torch.zeros(len(texts), dtype=torch.bool)
    kept[entropy.topk(count, largest=pairs.keep == "highest").indices] = True
    flags = iter(kept.tolist())
    chosen = [(example, tuple(text for text in example.captions if next(flags))) for example in examples]
    return tuple(replace(example, captions=captions) for example, captions in chosen if captions)


def retrieval_entropy(scorer: ClipScorer, texts: Sequence[str], images: Tensor) -> Tensor:
    """Entropy (T,), in nats, of p(picture | text) over all pictures, at the scorer's own temperature.

    ``images``: (N, D) features of the pictures.
    """
    scale = float(scorer.model.logit_scale.detach().exp())
    pool = normalize(images, dim=-1).T
    parts = []
    for start in range(0, len(texts), _TEXTS_PER_PASS):
        rows = scorer.encode_texts(texts[start : start + _TEXTS_PER_PASS], prefix=False)
        logs = (scale * rows @ pool).log_softmax(-1)
        parts.append(-(logs.exp() * logs).sum(-1))
    return torch.cat(parts) if parts else torch.zeros(0)
