"""Maximum likelihood: cross-entropy of each next token."""

from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from models.families.base import TorchCaptioner
from training.objectives.interface import IGNORE, Batch, Loss, Objective, teacher_force


def token_cross_entropy(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy, in fp32, over the labels (..., T) that are targets; logits (..., T, V).

    Zero, with zero gradient, where no label is a target: a mean over nothing would be NaN.
    """
    total = cross_entropy(
        logits.float().flatten(0, -2),
        labels.flatten(),
        ignore_index=IGNORE,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return total / (labels != IGNORE).sum().clamp(min=1)


class Mle(Objective):
    """Maximum likelihood with image dropout.

    For a share of the pictures the captioner sees its learned null memory instead, so that it also learns p(caption);
    decoding can then extrapolate away from it (classifier-free guidance, Ho and Salimans 2022).
    """

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        label_smoothing: float = Field(default=0.0, ge=0, lt=1)
        image_dropout: float = Field(default=0.0, ge=0, le=1)

    def __call__(self, captioner: TorchCaptioner, batch: Batch) -> Loss:
        memory = captioner.encode_from_stem(batch.features)
        if captioner.training and self.options.image_dropout:
            memory = drop_images(captioner, memory, self.options.image_dropout)
        logits = teacher_force(captioner, memory, batch.captions).logits
        assert logits is not None
        smoothing = self.options.label_smoothing if captioner.training else 0.0
        loss = token_cross_entropy(logits, batch.captions.targets.labels, smoothing)
        return Loss(loss, {"mle": loss.detach()})


def drop_images(captioner: TorchCaptioner, memory: Any, share: float) -> Tensor:
    """The memory (B, S, D) with that share of the pictures replaced by the captioner's null memory."""
    dropped = torch.rand(len(memory), 1, 1, device=memory.device) < share
    return torch.where(dropped, captioner.null_memory(len(memory)).to(memory.dtype), memory)
