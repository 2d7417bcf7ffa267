"""Classifier-free guidance (Kornblith et al. 2023, "Guiding Image Captioning Models Toward More Specific Captions")."""

from typing import Any

from torch import Tensor

from models.interfaces import Captioner


class GuidedRows:
    """The rows of one decoding call, each decoded with its picture and, where there is guidance, without it too.

    Guidance 1 is the captioner's own distribution: no null memory is asked for and nothing runs twice.
    """

    def __init__(self, captioner: Captioner, guidance: float, batch: int) -> None:
        """Raises RequestError: ``unsupported_option`` for guidance of a captioner that has no null memory."""
        self._captioner, self._guidance = captioner, guidance
        self._null_memories = [] if guidance == 1.0 else [captioner.null_memory(batch)]

    def start(self, memory: Any, prompts: list[str] | None) -> Tensor:
        """fp32 logits (B, V) of the first token, one row per image."""
        begun = [self._captioner.start(memory, prompts) for memory in (memory, *self._null_memories)]
        self._states = [state for state, _ in begun]
        return self._guided(*(logits for _, logits in begun))

    def reorder(self, rows: Tensor) -> None:
        """Replace row r by the old row ``rows[r]``, as ``Captioner.reorder`` does."""
        for state in self._states:
            self._captioner.reorder(state, rows)

    def step(self, tokens: Tensor) -> Tensor:
        """fp32 logits (R, V) after appending ``tokens`` (R,) to the rows."""
        return self._guided(*(self._captioner.step(state, tokens) for state in self._states))

    def _guided(self, logits: Tensor, *null_logits: Tensor) -> Tensor:
        return guide(logits.float(), null_logits[0].float(), self._guidance) if null_logits else logits.float()


def guide(logits: Tensor, null_logits: Tensor, guidance: float) -> Tensor:
    """Guided logits (R, V) from those with and without the picture: 0 forgets the picture, above 1 stresses it."""
    return null_logits + guidance * (logits - null_logits)
