"""Classifier-free guidance (Kornblith et al. 2023, "Guiding Image Captioning Models Toward More Specific Captions")."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.interfaces import Captioner, DecodeState


class GuidedRows:
    """The rows of one decoding session, each decoded with its picture and, where there is guidance, without it too.

    Guidance 1 is the captioner's own distribution: no null memory is asked for and nothing runs twice.
    """

    def __init__(self, captioner: Captioner, guidance: float) -> None:
        self._captioner, self._guidance = captioner, guidance
        self._states: list[DecodeState] = []

    def add(self, memory: Any, prompts: list[str] | None, *, batch: int, rows: int) -> Tensor:
        """fp32 logits (B*K, V) of the first token of ``batch`` B further images with ``rows`` K equal rows each, which
        stand behind the others from now on.

        Raises RequestError: ``unsupported_option`` for guidance of a captioner that has no null memory.
        """
        memories = [memory] if self._guidance == 1.0 else [memory, self._captioner.null_memory(batch)]
        begun = [self._captioner.start(each, prompts) for each in memories]
        logits = self._guided(*(logits for _, logits in begun))
        if rows > 1:
            widened = torch.arange(batch, device=logits.device).repeat_interleave(rows)
            for state, _ in begun:
                self._captioner.reorder(state, widened)
            logits = logits[widened]
        states = [state for state, _ in begun]
        if self._states:
            states = [self._captioner.merge(both) for both in zip(self._states, states, strict=True)]
        self._states = states
        return logits

    def keep(self, images: Tensor) -> None:
        """Drop all images but these, as ``Captioner.keep`` does; all of them where there are none."""
        if not len(images):
            self._states = []
        for state in self._states:
            self._captioner.keep(state, images)

    def reorder(self, rows: Tensor) -> None:
        """Replace row r by the old row ``rows[r]``, as ``Captioner.reorder`` does."""
        for state in self._states:
            self._captioner.reorder(state, rows)

    @staticmethod
    def step(decoders: Sequence["GuidedRows"], tokens: Sequence[Tensor]) -> list[Tensor]:
        """fp32 logits (R, V) of each of several, all of one captioner, after appending its ``tokens`` (R,) to its
        rows."""
        states = [state for decoder in decoders for state in decoder._states]
        appended = [own for decoder, own in zip(decoders, tokens, strict=True) for _ in decoder._states]
        found = iter(_step(decoders[0]._captioner, states, appended))
        return [decoder._guided(*[next(found) for _ in decoder._states]) for decoder in decoders]

    def _guided(self, logits: Tensor, *null_logits: Tensor) -> Tensor:
        return guide(logits.float(), null_logits[0].float(), self._guidance) if null_logits else logits.float()


def _step(captioner: Captioner, states: Sequence[DecodeState], tokens: Sequence[Tensor]) -> Sequence[Tensor]:
    if len(states) > 1 and "shared_steps" in captioner.capabilities:
        return captioner.step_together(states, tokens)
    return [captioner.step(state, each) for state, each in zip(states, tokens, strict=True)]


def guide(logits: Tensor, null_logits: Tensor, guidance: float) -> Tensor:
    """Guided logits (R, V) from those with and without the picture: 0 forgets the picture, above 1 stresses it."""
    return null_logits + guidance * (logits - null_logits)
