"""Self-critical sequence training (Rennie et al. 2017) with the rewards of CLIP-Reward (Cho et al. 2022)."""

from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from models.decoding import parse_decode
from models.families.base import TorchCaptioner
from models.interfaces import Hypothesis
from models.lookup import resolve
from models.text_stats import repeated_share
from training.objectives.generation import generate, generated_rows
from training.objectives.interface import Batch, Loss, Need, Objective, Resources, Rows, teacher_force
from training.objectives.mle import token_cross_entropy
from training.rewards import REWARDS, Reward
from training.seeds import seed_of


class Scst(Objective):
    """REINFORCE: captions are sampled, and those that a reward likes better than their rivals get likelier.

    loss = -sum of (reward - baseline) * log p over all sampled tokens, end tokens too, divided by their number; plus
    ``mle_weight`` times maximum likelihood, which keeps the language.
    """

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        reward: Literal["retrieval", "clip_score", "cider"] = "retrieval"
        samples: int = Field(default=5, ge=2)
        baseline: Literal["leave_one_out", "greedy"] = "leave_one_out"
        """The mean reward of the picture's other samples, or the reward of its greedy caption."""
        mle_weight: float = Field(default=0.2, ge=0)
        repetition_weight: float = Field(default=0.0, ge=0)
        """What the share of repeated 3-grams in a caption costs of its reward."""
        temperature: float = Field(default=1.0, ge=0.01, le=100)
        """Of the sampled captions, and of the probabilities that are made higher or lower."""
        max_tokens: int = Field(default=28, ge=1, le=512)
        label_smoothing: float = Field(default=0.0, ge=0, lt=1)
        scorer: str = "scorer"

    def __init__(self, options: Any, resources: Resources | None = None) -> None:
        super().__init__(options, resources)
        self._reward: Reward = resolve("reward", REWARDS, options.reward)(self.resources)
        shared = {"max_tokens": options.max_tokens}
        self._sample = parse_decode({"name": "sample", "options": {**shared, "temperature": options.temperature}})
        self._greedy = parse_decode({"name": "greedy", "options": shared})

    @classmethod
    def needs(cls, options: Any) -> frozenset[Need]:
        return frozenset() if options.reward == "cider" else frozenset({"scorer"})

    def __call__(self, captioner: TorchCaptioner, batch: Batch) -> Loss:
        memory = captioner.encode_from_stem(batch.features)
        first = int(torch.randint(2**62, ()))  # from the generator that the trainer seeds at every step
        seeds = [seed_of(first, "sample", int(image)) for image in batch.images]
        count, images = self.options.samples, len(batch.images)
        sampled = generate(captioner, memory, self._sample, batch=images, num_captions=count, seeds=seeds)
        rewards = self._rewards(captioner, sampled, batch)  # (B, samples)
        advantages = (rewards - self._baseline(captioner, memory, rewards, batch)).to(memory.device)
        rows = generated_rows(captioner, sampled).to(memory.device)
        reinforce = policy_loss(captioner, memory, rows, advantages.flatten(), self.options.temperature)
        parts = {"reinforce": reinforce.detach(), "reward": rewards.mean()}
        total = reinforce
        if self.options.mle_weight:
            logits = teacher_force(captioner, memory, batch.captions).logits
            assert logits is not None
            mle = token_cross_entropy(logits, batch.captions.targets.labels, self.options.label_smoothing)
            parts["mle"] = mle.detach()
            total = total + self.options.mle_weight * mle
        return Loss(total, parts)

    def count_units(self, batch: Batch) -> int:
        return len(batch.images)  # each has as many samples; how many tokens these get is known after they are drawn

    def _rewards(self, captioner: TorchCaptioner, captions: list[list[Hypothesis]], batch: Batch) -> Tensor:
        """Rewards (B, K) of captions of each picture."""
        texts = [[captioner.detokenize(one.tokens) for one in of_image] for of_image in captions]
        rewards = self._reward(batch.images.tolist(), texts)
        weight: float = self.options.repetition_weight
        repeated = torch.tensor([[repeated_share(text) for text in of_image] for of_image in texts])
        return rewards - weight * repeated

    def _baseline(self, captioner: TorchCaptioner, memory: Any, rewards: Tensor, batch: Batch) -> Tensor:
        if self.options.baseline == "leave_one_out":
            return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
        greedy = generate(captioner, memory, self._greedy, batch=len(batch.images))
        return self._rewards(captioner, greedy, batch)


def policy_loss(
    captioner: TorchCaptioner, memory: Any, rows: Rows, advantages: Tensor, temperature: float = 1.0
) -> Tensor:
    """-sum of advantage * log p over the targets, by their number; advantages (C,), one per caption of ``rows``.

    p is the distribution that the captions were drawn from, ``temperature`` included: only so is the gradient, on
    average, that of the expected reward.
    """
    logits = teacher_force(captioner, memory, rows).logits
    assert logits is not None
    targets = rows.targets
    logs = (logits.float() / temperature).log_softmax(-1).gather(1, targets.labels[:, None])[:, 0]
    return -(logs * advantages[targets.caption]).sum() / max(len(logs), 1)
