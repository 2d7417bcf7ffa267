"""Searches whose rows never meet: greedy decoding and sampling."""

from collections.abc import Callable

import torch
from torch import Tensor

from models.decoding.options import SharedOptions
from models.decoding.processors import process
from models.decoding.strategy import Plan
from models.interfaces import Hypothesis

Choose = Callable[[Tensor, int], Tensor]
"""Tokens (R,) from processed logits (R, V) and the number of the step."""


class RowSearch:
    """Each of the R = B*K rows continues by itself with what ``choose`` takes. Tensors are (R, ...)."""

    def __init__(self, plan: Plan, options: SharedOptions, choose: Choose) -> None:
        self._plan, self._options, self._choose = plan, options, choose
        self._history = plan.prompt.repeat_interleave(plan.rows, dim=0)
        self._limits = plan.limits.repeat_interleave(plan.rows)
        self._live = torch.ones_like(self._limits, dtype=torch.bool)
        self._lengths = torch.zeros_like(self._limits)
        self._ended = torch.zeros_like(self._live)
        self._logprobs = torch.zeros_like(self._limits, dtype=torch.float32)
        self._step = 0

    def advance(self, logits: Tensor) -> tuple[Tensor, None]:
        end_id, live = self._plan.end_id, self._live
        scores = process(logits, self._history, self._step, end_id, self._options)
        tokens = torch.where(live, self._choose(scores, self._step), end_id)
        gain = logits.log_softmax(dim=-1).gather(1, tokens.unsqueeze(1)).squeeze(1)
        self._logprobs = self._logprobs + torch.where(live, gain, 0.0)
        self._lengths = self._lengths + live
        self._ended = self._ended | (live & (tokens == end_id))
        self._history = torch.cat((self._history, tokens.unsqueeze(1)), dim=1)
        self._step += 1
        self._live = live & ~self._ended & (self._step < self._limits)
        return tokens, None

    @property
    def done(self) -> bool:
        return not bool(self._live.any())

    def hypotheses(self) -> list[list[Hypothesis]]:
        generated = self._history[:, self._plan.prompt.shape[1] :].tolist()
        rows = zip(generated, self._lengths.tolist(), self._ended.tolist(), self._logprobs.tolist(), strict=True)
        flat = [
            Hypothesis(tuple(tokens[: length - ended]), total / length, total / length, "stop" if ended else "length")
            for tokens, length, ended, total in rows
        ]
        count = self._plan.rows
        images = [flat[i : i + count] for i in range(0, len(flat), count)]
        return [sorted(image, key=lambda hypothesis: -hypothesis.score) for image in images]
