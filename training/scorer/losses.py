"""Losses of the scorer, on unit vectors: N texts, B images, D features."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div


def contrastive(images: Tensor, texts: Tensor, scale: Tensor, same_text: Tensor, label_smoothing: float) -> Tensor:
    """Symmetric InfoNCE of matching rows (B, D); the images of a batch are distinct.

    Args:
        scale: factor on the cosines.
        same_text: (B, B), True where two images drew equal captions; off the diagonal such pairs are no negatives.
    """
    own = torch.eye(len(images), dtype=torch.bool, device=images.device)
    logits = (scale * images @ texts.T).masked_fill(same_text & ~own, float("-inf"))
    return (_smoothed(logits, label_smoothing) + _smoothed(logits.T, label_smoothing)) / 2


def cosine_distance(found: Tensor, wanted: Tensor) -> Tensor:
    """Mean of 1 - cos over rows (N, D)."""
    return (1 - (found * wanted).sum(dim=-1)).mean()


def ranking_divergence(found: Tensor, wanted: Tensor, bank: Tensor, scale: float) -> Tensor:
    """KL from the teacher's distribution over a bank of pictures (B, D) to the student's, mean over texts (N, D).

    Only what changes the ranking of pictures matters to retrieval; plain distance treats all directions alike.
    """
    log_found = (scale * found @ bank.T).log_softmax(dim=-1)
    log_wanted = (scale * wanted @ bank.T).log_softmax(dim=-1)
    return kl_div(log_found, log_wanted, log_target=True, reduction="batchmean")


def _smoothed(logits: Tensor, label_smoothing: float) -> Tensor:
    """Cross-entropy with row b's label b. Smoothing spreads over finite logits only: 0 * inf would be NaN."""
    labels = torch.arange(len(logits), device=logits.device)
    hard = cross_entropy(logits, labels)
    log_probs = logits.log_softmax(dim=-1)
    finite = torch.isfinite(log_probs)
    spread = -log_probs.masked_fill(~finite, 0).sum(dim=-1) / finite.sum(dim=-1)
    return (1 - label_smoothing) * hard + label_smoothing * spread.mean()
