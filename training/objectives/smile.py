"""SMILE: semipermeable maximum likelihood (Yue et al. 2023, "Learning Descriptive Image Captioning via Semipermeable
Maximum Likelihood Estimation")."""

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from models.families.base import TorchCaptioner
from training.objectives.interface import Batch, Loss, Objective, Targets, teacher_force
from training.objectives.mle import token_cross_entropy
from training.objectives.subset_projection import project_subset

_RANDOM_WORDS = 10


class Smile(Objective):
    """Cross-entropy whose softmax runs over a subset of the vocabulary: the tokens of the caption itself.

    Words that the caption does not have are then no rivals: the captioner is not pushed towards the likeliest next word
    but learns to order the caption's own, and says more. ``mle_weight`` is the paper's lambda (eq. 4).
    """

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        mle_weight: float = Field(default=0.0, ge=0, le=1)
        subset: Literal["caption", "random", "reverse"] = "caption"
        """``random``: ten words drawn anew for each target, and the label; ``reverse``: every token that the caption
        does not have, and the label."""
        first_token: Literal["mle", "shift", "none"] = "mle"
        """How a caption begins: ``mle``, over the whole vocabulary; ``shift``, the label is its continuation piece
        ``##word``; ``none``, like every other token."""
        label_smoothing: float = Field(default=0.0, ge=0, lt=1)
        """Of the maximum-likelihood part."""

    def __call__(self, captioner: TorchCaptioner, batch: Batch) -> Loss:
        targets = batch.captions.targets
        if self.options.first_token == "shift":
            targets = self._shifted(captioner, targets)
        memory = captioner.encode_from_stem(batch.features)
        whole = bool(self.options.mle_weight) or self.options.subset == "reverse"
        forced = teacher_force(captioner, memory, batch.captions, output_logits=whole)
        losses = self._subset_losses(captioner, forced.states, forced.logits, targets)
        smile = losses.sum() / max(len(losses), 1)
        parts, total = {"smile": smile.detach()}, smile
        if self.options.mle_weight:
            assert forced.logits is not None
            mle = token_cross_entropy(forced.logits, batch.captions.targets.labels, self.options.label_smoothing)
            parts["mle"] = mle.detach()
            total = self.options.mle_weight * mle + (1 - self.options.mle_weight) * smile
        return Loss(total, parts)

    def _subset_losses(
        self, captioner: TorchCaptioner, states: Tensor | None, logits: Tensor | None, targets: Targets
    ) -> Tensor:
        """The loss of every target (N,)."""
        assert states is not None
        labels = targets.labels
        begins = targets.first  # with ``mle``, the only targets that need the whole vocabulary
        whole: Tensor | None = None
        if self.options.subset == "reverse":
            assert logits is not None
            losses = reverse_cross_entropy(logits, *caption_subsets(targets), targets.caption, labels)
        else:
            words, valid = self._subset(captioner, targets)
            if logits is not None:
                own = logits.gather(1, words)
            elif self.options.first_token == "mle":
                own, whole = project_subset(states, words, begins, *captioner.output_layer())
            else:
                own = captioner.project(states, words)
            losses = subset_cross_entropy(own, words, valid, labels)
        if self.options.first_token != "mle":
            return losses
        if whole is None:
            assert logits is not None
            whole = logits[begins]
        plain = torch.nn.functional.cross_entropy(whole.float(), labels[begins], reduction="none")
        return losses.masked_scatter(begins, plain)

    def _subset(self, captioner: TorchCaptioner, targets: Targets) -> tuple[Tensor, Tensor]:
        """Words (N, M) of each target's subset, and which of them count."""
        if self.options.subset == "caption":
            words, valid = caption_subsets(targets)
            return words[targets.caption], valid[targets.caption]
        drawn = torch.randint(captioner.vocab_size, (len(targets.labels), _RANDOM_WORDS), device=targets.labels.device)
        words = torch.cat([targets.labels[:, None], drawn], dim=1)
        return words, ~_repeats(words)

    def _shifted(self, captioner: TorchCaptioner, targets: Targets) -> Targets:
        """The targets with the label of each caption's first replaced by its continuation piece."""
        labels = targets.labels.clone()
        first = targets.first
        pieces = [captioner.continuation(int(label)) for label in labels[first]]
        labels[first] = torch.tensor(pieces, dtype=labels.dtype, device=labels.device)
        return Targets(labels, targets.caption, targets.row)


def caption_subsets(targets: Targets) -> tuple[Tensor, Tensor]:
    """Words (C, L) of each caption, its end token among them, and which of them count: each once, padding never."""
    words = targets.padded(-1)
    return words.clamp(min=0), (words >= 0) & ~_repeats(words)


def subset_cross_entropy(
    logits: Tensor, words: Tensor, valid: Tensor, labels: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy (N,), in fp32, of labels (N,) under a softmax over the valid ``words`` (N, M); logits (N, M).

    Equal to the cross-entropy of the whole vocabulary with every other logit at minus infinity. Smoothing spreads over
    the subset only.

    Raises:
        ValueError: a label that is not in its subset: its loss would be infinite.
    """
    is_label = (words == labels[:, None]) & valid
    if not bool(is_label.any(dim=1).all()):
        raise ValueError("a label is not in its own subset")
    logits = logits.float().masked_fill(~valid, -torch.inf)
    logs = logits - logits.logsumexp(dim=1, keepdim=True)
    logs = logs.masked_fill(~valid, 0.0)  # -inf times 0 would be NaN below and in the gradient
    at_label = (logs * is_label).sum(1)
    if not label_smoothing:
        return -at_label
    return -(1 - label_smoothing) * at_label - label_smoothing * logs.sum(1) / valid.sum(1)


def reverse_cross_entropy(logits: Tensor, words: Tensor, valid: Tensor, caption: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy (N,) of labels over all tokens but those of their caption; the label itself stays.

    ``words`` and ``valid`` (C, L) as ``caption_subsets`` gives them; logits (N, V).
    """
    barred = torch.zeros(len(words), logits.shape[1], dtype=torch.bool, device=logits.device)
    rows = torch.arange(len(words), device=words.device)[:, None].expand_as(words)
    barred[rows[valid], words[valid]] = True
    mask = barred[caption]  # (N, V)
    mask[torch.arange(len(labels), device=labels.device), labels] = False
    masked = logits.float().masked_fill(mask, -torch.inf)
    return torch.nn.functional.cross_entropy(masked, labels, reduction="none")


def _repeats(words: Tensor) -> Tensor:
    """True where a word (N, M) stands in its row already, further left."""
    same = words[:, :, None] == words[:, None, :]
    return same.tril(-1).any(-1)
