"""Retrieval specificity (Lindh et al. 2018, "Generating Diverse and Meaningful Captions")."""

import logging
import math
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import normalize

from models.errors import DataError
from models.families.base import TorchCaptioner
from training.negatives import nearest_images
from training.objectives.generation import evaluating
from training.objectives.interface import IGNORE, Batch, Loss, Need, Objective, Resources, teacher_force
from training.rows import make_rows
from training.seeds import seed_of
from training.soft_text import SoftTextEncoder

logger = logging.getLogger(__name__)

_COSINE = frozenset({"ccos", "cos"})
_CONTRASTIVE = frozenset({"ccos", "cdp"})


class Retrieval(Objective):
    """The caption that the captioner writes must be nearer to its own picture than to a similar one, under a scorer.

    The caption is decoded greedily inside the loss; its gradient goes through the scorer's text encoder to the token
    probabilities by the straight-through estimator. The four losses: ``dp`` and ``cos`` pull towards the own picture,
    ``cdp`` and ``ccos`` are hinges, max(0, s(caption, contrast) - s(caption, own)), without margin. ``dp`` and ``cdp``
    compare projections that are not normalised: normalised, as in the released code, they would equal the other two.
    """

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        loss: Literal["ccos", "cdp", "cos", "dp"] = "ccos"
        similar_fraction: float = Field(default=0.01, gt=0, le=1)
        """The contrast is drawn from this share of the training pictures, the most similar to the own one."""
        estimator: Literal["straight_through", "gumbel"] = "straight_through"
        temperature: float = Field(default=1.0, gt=0)
        """Of the probabilities that carry the gradient."""
        max_tokens: int = Field(default=20, ge=1)
        scorer: str = "scorer"

    def __init__(self, options: Any, resources: Resources | None = None) -> None:
        super().__init__(options, resources)
        features = self.resources.image_features
        assert features is not None and self.resources.scorer is not None and self.resources.reference is not None
        if len(features) < 2:
            raise DataError("no_data", "the contrast to a picture is another one: the training data need two or more")
        self._images = features
        self._nearest = nearest_images(normalize(features, dim=-1), math.ceil(options.similar_fraction * len(features)))
        self._texts = SoftTextEncoder(self.resources.scorer, self.resources.reference)
        logger.info("%.1f %% of the captioner's tokens are unknown to the scorer", 100 * self._texts.unmapped_share)

    @classmethod
    def needs(cls, options: Any) -> frozenset[Need]:
        return frozenset({"scorer", "reference"})

    def __call__(self, captioner: TorchCaptioner, batch: Batch) -> Loss:
        memory = captioner.encode_from_stem(batch.features)
        captions, noise = self._write(captioner, memory)
        kept = [row for row, caption in enumerate(captions) if caption]  # an empty caption has nothing to learn from
        tokens = torch.tensor([float(len(caption)) for caption in captions]).mean()
        probabilities = self._probabilities(captioner, memory, captions, noise)
        if not kept:
            nothing = 0.0 * torch.cat(probabilities).sum()
            return Loss(nothing, {"retrieval": nothing.detach(), "tokens": tokens})
        texts = self._texts.encode([captions[row] for row in kept], [probabilities[row] for row in kept])
        own = batch.images[kept].cpu()
        losses = retrieval_losses(
            texts.to(memory.device),
            self._images[own].to(memory.device),
            self._images[self._contrasts(own, batch.step)].to(memory.device),
            self.options.loss,
        )
        return Loss(losses.mean(), {"retrieval": losses.detach().mean(), "tokens": tokens})

    def count_units(self, batch: Batch) -> int:
        return len(batch.images)  # one written caption each

    def _contrasts(self, own: Tensor, step: int) -> Tensor:
        """A similar picture (C,) for each of the pictures (C,)."""
        generator = torch.Generator().manual_seed(seed_of(self.resources.seed, "contrast", step))
        ranks = torch.randint(self._nearest.shape[1], own.shape, generator=generator)
        return self._nearest[own, ranks]

    def _write(self, captioner: TorchCaptioner, memory: Any) -> tuple[list[list[int]], Tensor | None]:
        """A caption of each picture as token ids without the end, and the noise (B, T, V), if any, it was chosen with.

        In eval mode, so that the caption is the one that the captioner writes when it is used.
        """
        noisy = self.options.estimator == "gumbel"
        most = min(self.options.max_tokens, captioner.max_positions - 1)
        chosen, noises = [], []
        with evaluating(captioner):
            state, logits = captioner.start(memory)
            ended = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
            while True:
                logits = logits.float()
                if noisy:
                    noises.append(_gumbel(logits))
                    logits = logits + noises[-1]
                chosen.append(logits.argmax(-1))
                ended = ended | (chosen[-1] == captioner.end_id)
                if len(chosen) == most or bool(ended.all()):
                    break
                logits = captioner.step(state, chosen[-1])
        rows = torch.stack(chosen, dim=1).tolist()
        end = captioner.end_id
        captions = [row[: row.index(end)] if end in row else row for row in rows]
        return captions, torch.stack(noises, dim=1) if noisy else None

    def _probabilities(
        self, captioner: TorchCaptioner, memory: Any, captions: list[list[int]], noise: Tensor | None
    ) -> list[Tensor]:
        """For each caption the distributions (T, V) of its T tokens, with gradient."""
        # An empty caption keeps the place of its row by a token that is no target.
        ids = [[[captioner.start_id, *(tokens or [IGNORE])]] for tokens in captions]
        rows = make_rows(ids, packed="packing" in captioner.capabilities).to(captioner.device)
        logits = teacher_force(captioner, memory, rows).logits
        assert logits is not None
        parts = list(torch.split(logits.float(), [len(tokens) for tokens in captions]))
        if noise is not None:
            parts = [part + noise[row, : len(part)] for row, part in enumerate(parts)]
        return [(part / self.options.temperature).softmax(-1) for part in parts]


def retrieval_losses(texts: Tensor, own: Tensor, contrast: Tensor, loss: str) -> Tensor:
    """Losses (C,) of captions, their own and their contrast pictures: features (C, D), not normalised.

    ``loss``: ``dp``, ``cos``, ``cdp`` or ``ccos``.
    """
    if loss in _COSINE:
        texts, own, contrast = (normalize(features, dim=-1) for features in (texts, own, contrast))
    to_own = (texts * own).sum(-1)
    if loss not in _CONTRASTIVE:
        return -to_own
    return ((texts * contrast).sum(-1) - to_own).clamp(min=0)


def _gumbel(like: Tensor) -> Tensor:
    """Gumbel noise in the shape of logits, from torch's generator: the argmax of both is a sample of the softmax."""
    uniform = torch.rand(like.shape, device=like.device).clamp(min=torch.finfo(like.dtype).tiny)
    return -(-uniform.log()).clamp(min=torch.finfo(like.dtype).tiny).log()
