"""Beam search on tensors for one group of beams per image."""

from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from models.decoding.beams import CHOICE, Beams
from models.decoding.strategy import Plan


class BeamGroup:
    """K running beams and the best K finished ones of each image.

    Follows ``_beam_search`` of ``transformers`` 5.24 operation for operation, so that fp32 results are equal: 2K
    candidates, of which only the best K may finish, and an image is closed when its best running beam, at its present
    length, is no better than its worst finished one. What must not be chosen scores -inf here (-1e9 there), so that it
    never turns up as a caption.
    """

    def __init__(self, plan: Plan, beams: int, length_penalty: float, early_stopping: bool) -> None:
        self._plan, self._beams, self._early_stopping = plan, beams, early_stopping
        self.finished = Beams.empty(plan.prompt, beams)
        sums = self.finished.sums.clone()
        sums[:, 0, CHOICE] = 0.0  # all rows of an image begin equal, so only the first may be continued at first
        self.running = replace(self.finished, sums=sums)
        self.open = torch.ones_like(plan.limits, dtype=torch.bool)
        """(B,) whether the image can still get a better caption."""
        self._length_penalty = length_penalty
        self._norms = self._norms_up_to(plan.limits)

    def advance(
        self, raw: Tensor, processed: Tensor, penalty: Tensor | None, steps: Tensor, limits: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Next tokens (B, K), none of them the end token while there are others, and the beams (B, K) they continue.

        ``raw`` and ``processed`` are the log-probabilities (B, K, V) before and after processing; ``penalty`` (B, V) is
        subtracted from the latter for choosing. ``steps`` and ``limits`` (B,): tokens generated so far, and at most.
        """
        choice = processed if penalty is None else processed - penalty.unsqueeze(1)
        candidates, parents = self._candidates(raw, processed, choice, steps)
        tokens = candidates.text[:, :, -1]
        ends = tokens == self._plan.end_id
        last = steps + 1 >= limits  # (B,)
        norm = self._norms[steps]
        self._finish(candidates, ends | last.unsqueeze(1), norm)
        order = candidates.score.masked_fill(ends, -torch.inf).topk(self._beams).indices
        chosen_ends = ends.gather(1, order)
        self.running = candidates.gather(order)
        self.running.sums[..., CHOICE].masked_fill_(chosen_ends, -torch.inf)
        self._close(last, norm)
        return tokens.gather(1, order), parents.gather(1, order)

    def _candidates(self, raw: Tensor, processed: Tensor, choice: Tensor, steps: Tensor) -> tuple[Beams, Tensor]:
        """The best 2K continuations of each image and the beams (B, 2K) they continue."""
        wanted = 2 * self._beams
        # No more of one beam can be among the best, so the beams' totals are added to these few only.
        gain, token = choice.topk(min(wanted, choice.shape[-1]))  # (B, K, 2K)
        totals = (gain + self.running.score.unsqueeze(-1)).flatten(1)
        score, place = totals.topk(min(wanted, totals.shape[1]))
        parents, tokens = place // gain.shape[-1], token.flatten(1).gather(1, place)
        chosen = self.running.gather(parents)
        flat = parents * choice.shape[-1] + tokens
        gains = torch.stack((processed.flatten(1).gather(1, flat), raw.flatten(1).gather(1, flat)), dim=-1)
        sums = torch.cat((score.unsqueeze(-1), chosen.sums[..., 1:] + gains), dim=-1)
        text = torch.cat((chosen.text, tokens.unsqueeze(-1)), dim=-1)
        return Beams(text, sums, (steps + 1).unsqueeze(1).expand(-1, flat.shape[1])), parents

    def _finish(self, candidates: Beams, stops: Tensor, norm: Tensor) -> None:
        """Merge the candidates that stop now into the best K finished beams of the open images."""
        best = torch.arange(stops.shape[1], device=stops.device) < self._beams
        stops = stops & best & self.open.unsqueeze(1)
        if not bool(stops.any()):
            return
        per_length = candidates.sums.clone()
        per_length[..., :2] /= norm.view(-1, 1, 1)
        per_length[..., CHOICE].masked_fill_(~stops, -torch.inf)
        stopped = replace(candidates, sums=per_length, length=candidates.length * stops)
        merged = self.finished.beside(stopped, self._plan.vocab_size)
        self.finished = merged.gather(merged.score.topk(self._beams).indices)

    def _close(self, last: Tensor, norm: Tensor) -> None:
        """Close the images that are at their limit or whose running beams cannot improve the finished ones."""
        full = (self.finished.length > 0).all(dim=1)
        best = self.running.score[:, 0] / norm
        hopeless = full if self._early_stopping else full & (best <= self.finished.score[:, -1])
        self.open = self.open & ~hopeless & ~last & (best > -torch.inf)

    def join(self, other: Self) -> None:
        """Take in the images of another group, behind the own."""
        self.running = self.running.below(other.running, self._plan.vocab_size)
        self.finished = self.finished.below(other.finished, self._plan.vocab_size)
        self.open = torch.cat((self.open, other.open))
        self._norms = max(self._norms, other._norms, key=len)

    def keep(self, images: Tensor, skipped: int) -> None:
        """Drop all images but ``images`` (M,), and the first ``skipped`` columns of the running text."""
        self.running = self.running.of(images, skipped)
        missing = self.running.text.shape[-1] - self.finished.text.shape[-1]
        self.finished = self.finished.of(images, max(0, -missing))
        self.open = self.open[images]

    def _norms_up_to(self, limits: Tensor) -> Tensor:
        """What totals are divided by, by the number of tokens before the last."""
        norms = [length**self._length_penalty for length in range(1, int(limits.max()) + 1)]
        return torch.tensor(norms, device=limits.device, dtype=torch.float32)
