"""Contrastive learning for captioning (Dai and Lin 2017, "Contrastive Learning for Image Captioning")."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import softplus

from models.families.base import TorchCaptioner
from training.negatives import NegativeOptions
from training.objectives.interface import Batch, Loss, Need, Objective, Resources, Rows, teacher_force


class Contrastive(Objective):
    """The captioner must give a picture's captions more probability than a frozen reference does, and captions of
    other pictures less.

    G = log p_model(c | I) - log p_reference(c | I), summed over the tokens of c. The loss is logistic (eq. 10):
    softplus(-G) for the picture's own captions and softplus(G) for mismatched ones, which keeps its gradient where the
    sigmoid and its logarithm of the released code have none left.
    """

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        K: int = Field(default=5, ge=1)
        """Mismatched captions per caption, drawn anew every step."""
        nu: float = Field(default=1.0, gt=0)
        terms: Literal["both", "positive", "negative"] = "both"
        refresh_reference_every: int | None = Field(default=None, ge=1)
        """Steps after which the captioner as it is becomes the reference."""
        hard_negatives: float = Field(default=0.0, ge=0, le=1)
        """Share of the mismatched captions that come from the most similar pictures, by the scorer."""
        scorer: str = "scorer"

    def __init__(self, options: Any, resources: Resources | None = None) -> None:
        super().__init__(options, resources)
        assert self.resources.reference is not None
        self.reference: TorchCaptioner = self.resources.reference

    @classmethod
    def needs(cls, options: Any) -> frozenset[Need]:
        return frozenset({"reference", "scorer"} if options.hard_negatives else {"reference"})

    @classmethod
    def negatives(cls, options: Any) -> NegativeOptions | None:
        if options.terms == "positive":
            return None
        return NegativeOptions(per_caption=options.K, hard_share=options.hard_negatives)

    def __call__(self, captioner: TorchCaptioner, batch: Batch) -> Loss:
        self.reference.to(captioner.device)
        self._refresh(captioner, batch.step)
        memory = captioner.encode_from_stem(batch.features)
        with torch.no_grad():
            reference_memory = self.reference.encode_from_stem(batch.features)
        gains = {
            name: self._gains(captioner, memory, reference_memory, rows)
            for name, rows in (("positive", batch.captions), ("negative", batch.negatives))
            if rows is not None and self.options.terms in ("both", name)
        }
        losses = {name: gain_loss(gain, own=name == "positive", nu=self.options.nu) for name, gain in gains.items()}
        parts = {name: loss.detach() for name, loss in losses.items()}
        means = {f"{name}_gain": _mean(gain.detach()) for name, gain in gains.items()}
        return Loss(torch.stack(list(losses.values())).sum(), parts | means)

    def count_units(self, batch: Batch) -> int:
        return len(batch.captions.targets.row)  # captions; each has as many mismatched ones

    def _gains(self, captioner: TorchCaptioner, memory: Any, reference_memory: Any, rows: Rows) -> Tensor:
        with torch.no_grad():
            before = sequence_logprobs(self.reference, reference_memory, rows)
        return sequence_logprobs(captioner, memory, rows) - before

    def _refresh(self, captioner: TorchCaptioner, step: int) -> None:
        every = self.options.refresh_reference_every
        if every and step and step % every == 0:
            self.reference.load_state_dict(captioner.state_dict())

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.reference.state_dict()) if self.options.refresh_reference_every else {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if state:
            self.reference.load_state_dict(dict(state))


def sequence_logprobs(captioner: TorchCaptioner, memory: Any, rows: Rows) -> Tensor:
    """log p(c | I) (C,), in fp32: the sum over the tokens of each caption and its end token, without normalisation."""
    logits = teacher_force(captioner, memory, rows).logits
    assert logits is not None
    targets = rows.targets
    logs = logits.float().log_softmax(-1).gather(1, targets.labels[:, None])[:, 0]
    return targets.sum_by_caption(logs)


def gain_loss(gains: Tensor, *, own: bool, nu: float = 1.0) -> Tensor:
    """The mean loss of gains G (C,) of own captions, or of mismatched ones: softplus(-/+ (G - log nu))."""
    return _mean(softplus((math.log(nu) - gains) if own else (gains - math.log(nu))))


def _mean(values: Tensor) -> Tensor:
    """The mean of values (C,), 0 of none: pictures may lack a mismatched caption."""
    return values.sum() / max(len(values), 1)
