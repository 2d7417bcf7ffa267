"""Beam search and diverse beam search: groups of beams that take their turns at every step."""

from typing import Self

import torch
from torch import Tensor

from models.decoding.beam_group import BeamGroup
from models.decoding.options import SharedOptions
from models.decoding.processors import needs_history, process
from models.decoding.strategy import Plan
from models.interfaces import Hypothesis
from models.rows import leading_padding


class BeamSearch:
    """G groups of K/G beams for each image; a group avoids the words that earlier ones take at the same step.

    Rows: R = B*K, the groups of an image one after the other.
    """

    def __init__(
        self, plan: Plan, options: SharedOptions, groups: list[BeamGroup], diversity_penalty: float = 0.0
    ) -> None:
        self._plan, self._options, self._groups, self._diversity_penalty = plan, options, groups, diversity_penalty
        self._limits, self._steps = plan.limits, torch.zeros_like(plan.limits)  # (B,)

    def advance(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        plan, batch, beams = self._plan, len(self._steps), self._plan.rows // len(self._groups)
        shape = (batch, len(self._groups), beams, plan.vocab_size)
        logprobs = logits.log_softmax(dim=-1)  # (R, V)
        steps = self._steps.repeat_interleave(plan.rows)
        processed = process(logprobs, self._history(), steps, plan.end_id, self._options).view(shape)
        raw = logprobs.view(shape)
        taken = raw.new_zeros(batch, plan.vocab_size)  # how many beams of earlier groups took each token
        tokens, parents = [], []
        for i, group in enumerate(self._groups):
            live = group.open.unsqueeze(1)  # (B, 1); a finished group no longer pushes the others
            penalty = self._diversity_penalty * taken if i else None
            chosen, continued = group.advance(raw[:, i], processed[:, i], penalty, self._steps, self._limits)
            continuing = live & (group.running.score > -torch.inf)
            if i + 1 < len(self._groups):
                taken = taken.scatter_add(1, chosen, continuing.to(taken.dtype))
            tokens.append(chosen)
            parents.append(continued + i * beams)
        self._steps = self._steps + 1
        first_row = torch.arange(batch, device=logits.device).unsqueeze(1) * plan.rows
        return torch.cat(tokens, dim=1).flatten(), (torch.cat(parents, dim=1) + first_row).flatten()

    def _history(self) -> Tensor:
        """Prompt and caption so far of each row, (R, P + steps), where something looks at it."""
        if not needs_history(self._options):
            return self._steps.new_zeros(0, 0)
        return torch.cat([group.running.text for group in self._groups], dim=1).flatten(0, 1)

    @property
    def open(self) -> Tensor:
        return torch.stack([group.open for group in self._groups]).any(dim=0)

    def hypotheses(self, images: Tensor) -> list[list[Hypothesis]]:
        groups = [group.finished.of(images).hypotheses(self._plan.end_id) for group in self._groups]
        return [merge_groups([group[image] for group in groups]) for image in range(len(images))]

    def join(self, other: Self) -> None:
        for own, joining in zip(self._groups, other._groups, strict=True):
            own.join(joining)
        self._limits = torch.cat((self._limits, other._limits))
        self._steps = torch.cat((self._steps, other._steps))

    def keep(self, images: Tensor) -> None:
        self._limits, self._steps = self._limits[images], self._steps[images]
        texts = torch.cat([group.running.text[images] for group in self._groups], dim=1)
        skipped = leading_padding(texts.flatten(0, 1) != self._plan.vocab_size)
        for group in self._groups:
            group.keep(images, skipped)


def merge_groups(groups: list[list[Hypothesis]]) -> list[Hypothesis]:
    """Each group's best caption that no earlier group stands with, then the rest, then repeats, each best first."""
    leaders: dict[tuple[int, ...], Hypothesis] = {}
    for group in groups:
        fresh = next((hypothesis for hypothesis in group if hypothesis.tokens not in leaders), None)
        if fresh is not None:
            leaders[fresh.tokens] = fresh
    rest: dict[tuple[int, ...], Hypothesis] = {}
    repeats = []
    for hypothesis in (hypothesis for group in groups for hypothesis in group):
        if leaders.get(hypothesis.tokens) is hypothesis:
            continue
        if hypothesis.tokens in leaders or hypothesis.tokens in rest:
            repeats.append(hypothesis)
        else:
            rest[hypothesis.tokens] = hypothesis
    parts = (list(leaders.values()), list(rest.values()), repeats)
    return [hypothesis for part in parts for hypothesis in sorted(part, key=lambda h: -h.score)]
