"""UNKT: unlikely negative knowledge transfer (Fei and Huang 2023, "Uncertainty-Aware Image Captioning by Unlikely
Negative Knowledge Transfer"); how its open points are read is in docs/PAPERS.md."""

import math
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from models.families.base import TorchCaptioner
from models.interfaces import TeacherForced
from training.objectives.interface import Batch, Loss, Need, Objective, Resources, Rows, teacher_force
from training.objectives.mle import token_cross_entropy


class Unkt(Objective):
    """Maximum likelihood, and away from a negative teacher that learned generic captions only.

    L = (1 - lambda) L_mle + lambda (L_pred + sum over layers of L_hid and L_att): soft unlikelihood of the teacher's
    predictions, and exp(-KL) between teacher and student of hidden states and attentions. The teacher is a checkpoint
    of the same architecture, trained by maximum likelihood on the captions that retrieve their picture worst.
    """

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        teacher: str
        """The negative teacher: a model id or folder."""
        schedule: Literal["paper", "cosine", "fixed"] = "paper"
        """Of lambda, after its rise: ``paper``, from 1 to 1/2 (eq. 10 as printed); ``cosine``, from 1 to 0, as its text
        says; ``fixed``."""
        rise_epochs: float = Field(default=5.0, ge=0)
        fixed_lambda: float = Field(default=0.5, ge=0, le=1)
        use_prediction: bool = True
        use_hidden: bool = True
        use_attention: bool = True
        target: Literal["soft", "hard"] = "soft"
        """Of the unlikelihood: the teacher's distribution, or its likeliest token."""
        label_smoothing: float = Field(default=0.0, ge=0, lt=1)

    def __init__(self, options: Any, resources: Resources | None = None) -> None:
        super().__init__(options, resources)
        assert self.resources.teacher is not None
        self.teacher: TorchCaptioner = self.resources.teacher

    @classmethod
    def needs(cls, options: Any) -> frozenset[Need]:
        return frozenset({"teacher"})

    def __call__(self, captioner: TorchCaptioner, batch: Batch) -> Loss:
        rows = batch.captions
        student = self._forced(captioner, batch)
        with torch.no_grad():
            teacher = self._forced(self.teacher.to(captioner.device), batch)
        assert student.logits is not None and teacher.logits is not None
        parts = self._negative_parts(teacher, student, rows)
        weight = self.weight(batch)
        mle = token_cross_entropy(student.logits, rows.targets.labels, self.options.label_smoothing)
        total = (1 - weight) * mle + weight * sum(parts.values(), start=mle.new_zeros(()))
        logged = {name: part.detach() for name, part in {"mle": mle, **parts}.items()}
        return Loss(total, {**logged, "lambda": mle.new_tensor(weight)})

    def weight(self, batch: Batch) -> float:
        """Lambda at the step of the batch."""
        options: Unkt.Options = self.options
        if options.schedule == "fixed":
            return options.fixed_lambda
        rise = min(round(options.rise_epochs * batch.steps_per_epoch), batch.steps)
        if batch.step < rise:
            return batch.step / rise
        done = (batch.step - rise) / max(batch.steps - rise, 1)
        return 0.5 * (1 + math.cos(done * math.pi / (2 if options.schedule == "paper" else 1)))

    def _forced(self, captioner: TorchCaptioner, batch: Batch) -> TeacherForced:
        return teacher_force(
            captioner,
            captioner.encode_from_stem(batch.features),
            batch.captions,
            output_hidden_states=self.options.use_hidden,
            output_attentions=self.options.use_attention,
        )

    def _negative_parts(self, teacher: TeacherForced, student: TeacherForced, rows: Rows) -> dict[str, Tensor]:
        parts: dict[str, Tensor] = {}
        at = rows.is_target
        if self.options.use_prediction:
            assert student.logits is not None and teacher.logits is not None
            weights = teacher.logits.float().softmax(-1)
            if self.options.target == "hard":
                weights = torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1]).float()
            parts["prediction"] = soft_unlikelihood(weights, student.logits)
        if self.options.use_hidden:
            pairs = zip(teacher.hidden_states or (), student.hidden_states or (), strict=True)
            parts["hidden"] = _total(
                reversed_kl(ours[at].float().log_softmax(-1), theirs[at].float().log_softmax(-1))
                for ours, theirs in pairs
            )
        if self.options.use_attention:
            pairs = zip(_attentions(teacher), _attentions(student), strict=True)
            parts["attention"] = _total(
                reversed_kl(*attention_logs(ours.transpose(1, 2)[at], theirs.transpose(1, 2)[at]))  # (N, H, S)
                for ours, theirs in pairs
            )
        return parts


def soft_unlikelihood(weights: Tensor, logits: Tensor) -> Tensor:
    """Mean over targets of -sum_k weights_k log(1 - p_k), p the softmax of logits (N, V); weights (N, V).

    Exact where p is 1 in floating point: the likeliest token's log(1 - p) is the logsumexp of all others less that of
    all; the others have p <= 1/2.
    """
    logits = logits.float()
    top = logits.argmax(-1, keepdim=True)
    everything = logits.logsumexp(-1, keepdim=True)
    is_top = torch.zeros_like(logits, dtype=torch.bool).scatter(1, top, True)
    others = logits.masked_fill(is_top, -torch.inf).logsumexp(-1, keepdim=True)
    p = (logits - everything).exp().masked_fill(is_top, 0.0)
    log_without = torch.where(is_top, others - everything, torch.log1p(-p))
    return -(weights * log_without).sum(-1).sum() / max(len(logits), 1)


def reversed_kl(teacher: Tensor, student: Tensor) -> Tensor:
    """Mean over rows of exp(-KL(teacher || student)), of log-probabilities (N, ..., S).

    1 where they agree, near 0 where they do not: minimising it drives the student away.
    """
    return (-(teacher.exp() * (teacher - student)).sum(-1)).exp().mean()


def _attentions(forced: TeacherForced) -> tuple[Tensor, ...]:
    """Self- and cross-attentions of every layer."""
    return (*(forced.self_attentions or ()), *(forced.cross_attentions or ()))


def attention_logs(teacher: Tensor, student: Tensor) -> tuple[Tensor, Tensor]:
    """Log-weights of two attentions (..., S) as shares of the places where both have weight, and 0 at the others.

    The others add nothing to KL then: what the causal mask forbids, and what dropout took away, which some families
    apply before they show their attention.
    """
    kept = (teacher > 0) & (student > 0)
    first, second = (_log_shares(weights.float(), kept) for weights in (teacher, student))
    return first, second


def _log_shares(weights: Tensor, kept: Tensor) -> Tensor:
    logs = weights.masked_fill(~kept, 1.0).log()
    total = logs.masked_fill(~kept, -torch.inf).logsumexp(-1, keepdim=True)
    return (logs - total.masked_fill(total.isinf(), 0.0)).masked_fill(~kept, 0.0)


def _total(values: Any) -> Tensor:
    return torch.stack(list(values)).sum()
