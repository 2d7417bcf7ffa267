"""Rewards of sampled captions: the table, and what every reward gives."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from training.objectives.interface import Resources

REWARDS = {
    "retrieval": "training.rewards.retrieval:RetrievalReward",
    "clip_score": "training.rewards.clip_score:ClipScoreReward",
    "cider": "training.rewards.cider:CiderReward",
}


class Reward(Protocol):
    """A number for every caption, higher for a better one. Called without gradient."""

    def __init__(self, resources: Resources) -> None: ...

    def __call__(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> Tensor:
        """Rewards (B, K) of K captions for each of B training examples, given by their indices."""
