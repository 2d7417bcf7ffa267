"""Searches whose rows never meet: greedy decoding and sampling."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from models.decoding.options import SharedOptions
from models.decoding.processors import process
from models.decoding.strategy import Plan
from models.interfaces import Hypothesis
from models.rows import cat_left_padded, leading_padding, rows_of

Choose = Callable[[Tensor, Tensor], Tensor]
"""Tokens (R,) from processed logits (R, V) and a random number for each row (R,)."""


class RowSearch:
    """Each of the R = B*K rows continues by itself with what ``choose`` takes. Tensors are (R, ...)."""

    def __init__(self, plan: Plan, options: SharedOptions, choose: Choose, numbers: Tensor | None = None) -> None:
        """``numbers`` (R, T): the random numbers of each row, one for each step; None where nothing is random."""
        self._plan, self._options, self._choose = plan, options, choose
        self._history = plan.prompt.repeat_interleave(plan.rows, dim=0)
        self._limits = plan.limits.repeat_interleave(plan.rows)
        self._steps = torch.zeros_like(self._limits)
        self._numbers = self._limits.new_zeros(len(self._limits), 1) if numbers is None else numbers
        self._live = torch.ones_like(self._limits, dtype=torch.bool)
        self._lengths = torch.zeros_like(self._limits)
        self._ended = torch.zeros_like(self._live)
        self._logprobs = torch.zeros_like(self._limits, dtype=torch.float32)

    def advance(self, logits: Tensor) -> tuple[Tensor, None]:
        end_id, live = self._plan.end_id, self._live
        scores = process(logits, self._history, self._steps, end_id, self._options)
        at = self._steps.clamp(max=self._numbers.shape[1] - 1).unsqueeze(1)
        tokens = torch.where(live, self._choose(scores, self._numbers.gather(1, at).squeeze(1)), end_id)
        gain = logits.log_softmax(dim=-1).gather(1, tokens.unsqueeze(1)).squeeze(1)
        self._logprobs = self._logprobs + torch.where(live, gain, 0.0)
        self._lengths = self._lengths + live
        self._ended = self._ended | (live & (tokens == end_id))
        self._history = torch.cat((self._history, tokens.unsqueeze(1)), dim=1)
        self._steps = self._steps + 1
        self._live = live & ~self._ended & (self._steps < self._limits)
        return tokens, None

    @property
    def open(self) -> Tensor:
        return self._live.view(-1, self._plan.rows).any(dim=1)

    def hypotheses(self, images: Tensor) -> list[list[Hypothesis]]:
        count = self._plan.rows
        chosen = rows_of(images, count)
        columns = (self._history, self._steps, self._lengths, self._ended, self._logprobs)
        flat = [
            _hypothesis(history[len(history) - steps :], length, ended, total)
            for history, steps, length, ended, total in zip(
                *(column[chosen].tolist() for column in columns), strict=True
            )
        ]
        found = [flat[i : i + count] for i in range(0, len(flat), count)]
        return [sorted(image, key=lambda hypothesis: -hypothesis.score) for image in found]

    def join(self, other: Self) -> None:
        self._history = cat_left_padded((self._history, other._history), self._plan.vocab_size)
        longest = max(self._numbers.shape[1], other._numbers.shape[1])
        both = [torch.nn.functional.pad(one, (0, longest - one.shape[1])) for one in (self._numbers, other._numbers)]
        self._numbers = torch.cat(both)
        for name in ("_limits", "_steps", "_live", "_lengths", "_ended", "_logprobs"):
            setattr(self, name, torch.cat((getattr(self, name), getattr(other, name))))

    def keep(self, images: Tensor) -> None:
        rows = rows_of(images, self._plan.rows)
        for name in ("_history", "_numbers", "_limits", "_steps", "_live", "_lengths", "_ended", "_logprobs"):
            setattr(self, name, getattr(self, name)[rows])
        self._history = self._history[:, leading_padding(self._history != self._plan.vocab_size) :]


def _hypothesis(generated: list[int], length: int, ended: bool, total: float) -> Hypothesis:
    mean = total / length
    return Hypothesis(tuple(generated[: length - ended]), mean, mean, "stop" if ended else "length")
