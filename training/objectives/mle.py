"""Maximum likelihood: cross-entropy of each next token."""

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from models.families.compact import CompactCaptioner
from training.objectives import IGNORE, Batch, Loss


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


class Mle:
    """Maximum likelihood with image dropout.

    For a share of the pictures the captioner sees its learned null memory instead, so that it also learns p(caption);
    decoding can then extrapolate away from it (classifier-free guidance, Ho and Salimans 2022).
    """

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        label_smoothing: float = Field(default=0.0, ge=0, lt=1)
        image_dropout: float = Field(default=0.0, ge=0, le=1)

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, captioner: CompactCaptioner, batch: Batch) -> Loss:
        memory = captioner.encode_from_stem(batch.features)
        if captioner.training and self.options.image_dropout:
            dropped = torch.rand(len(memory), 1, 1, device=memory.device) < self.options.image_dropout
            memory = torch.where(dropped, captioner.null_memory(len(memory)).to(memory.dtype), memory)
        targets = batch.labels != IGNORE
        logits = captioner.model(memory, batch.input_ids, batch.segments, at=targets).logits
        smoothing = self.options.label_smoothing if captioner.training else 0.0
        loss = token_cross_entropy(logits, batch.labels[targets], smoothing)
        return Loss(loss, {"mle": loss.detach()})
