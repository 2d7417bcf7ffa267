"""Beam search on tensors for one group of beams per image."""

from dataclasses import replace

import torch
from torch import Tensor

from models.decoding.beams import Beams
from models.decoding.strategy import Plan


class BeamGroup:
    """K running beams and the best K finished ones of each image.

    Follows ``_beam_search`` of ``transformers`` 5.24 operation for operation, so that fp32 results are equal: 2K
    candidates, of which only the best K may finish, and an image is closed when its best running beam, at its present
    length, is no better than its worst finished one. What must not be chosen scores -inf here (-1e9 there), so that it
    never turns up as a caption.
    """

    def __init__(self, plan: Plan, beams: int, length_penalty: float, early_stopping: bool) -> None:
        self._plan, self._beams = plan, beams
        self._length_penalty, self._early_stopping = length_penalty, early_stopping
        empty = Beams.empty(plan.batch, beams, int(plan.limits.max()), plan.end_id, plan.limits.device)
        first = torch.arange(beams, device=plan.limits.device) == 0
        # All rows of an image begin equal, so only the first may be continued at first.
        self.running = replace(empty, score=empty.score.masked_fill(first, 0.0))
        self.finished = empty
        self.open = torch.ones_like(plan.limits, dtype=torch.bool)
        """(B,) whether the image can still get a better caption."""

    def advance(self, raw: Tensor, processed: Tensor, penalty: Tensor | None, step: int) -> tuple[Tensor, Tensor]:
        """Next tokens (B, K), none of them the end token while there are others, and the beams (B, K) they continue.

        ``raw`` and ``processed`` are the log-probabilities (B, K, V) before and after processing; ``penalty`` (B, V) is
        subtracted from the latter for choosing.
        """
        choice = processed if penalty is None else processed - penalty.unsqueeze(1)
        candidates, parents = self._candidates(raw, processed, choice, step)
        tokens = candidates.tokens[:, :, step]
        ends = tokens == self._plan.end_id
        last = step + 1 >= self._plan.limits  # (B,)
        self._finish(candidates, ends | last.unsqueeze(1), step + 1)
        kept = replace(candidates, score=candidates.score.masked_fill(ends, -torch.inf))
        order = kept.score.topk(self._beams).indices
        self.running = kept.gather(order)
        self._close(last, step + 1)
        return tokens.gather(1, order), parents.gather(1, order)

    def _candidates(self, raw: Tensor, processed: Tensor, choice: Tensor, step: int) -> tuple[Beams, Tensor]:
        """The best 2K continuations of each image and the beams (B, 2K) they continue."""
        vocab = choice.shape[-1]
        totals = choice + self.running.score.unsqueeze(-1)  # (B, K, V)
        score, flat = totals.flatten(1).topk(min(2 * self._beams, totals[0].numel()))
        parents = flat // vocab
        chosen = self.running.gather(parents)
        chosen.tokens[:, :, step] = flat % vocab
        plain = chosen.plain + processed.flatten(1).gather(1, flat)
        own = chosen.raw + raw.flatten(1).gather(1, flat)
        return replace(chosen, score=score, plain=plain, raw=own, length=chosen.length + 1), parents

    def _finish(self, candidates: Beams, stops: Tensor, generated: int) -> None:
        """Merge the candidates that stop now into the best K finished beams of the open images."""
        best = torch.arange(stops.shape[1], device=stops.device) < self._beams
        stops = stops & best & self.open.unsqueeze(1)
        norm = generated**self._length_penalty
        score = (candidates.score / norm).masked_fill(~stops, -torch.inf)
        merged = self.finished.cat(replace(candidates, score=score, plain=candidates.plain / norm, finished=stops))
        self.finished = merged.gather(merged.score.topk(self._beams).indices)

    def _close(self, last: Tensor, generated: int) -> None:
        """Close the images that are at their limit or whose running beams cannot improve the finished ones."""
        full = self.finished.finished.all(dim=1)
        best = self.running.score[:, 0] / generated**self._length_penalty
        hopeless = full & (best <= self.finished.score[:, -1])
        if self._early_stopping:
            hopeless = full
        self.open = self.open & ~hopeless & ~last & (best > -torch.inf)
