"""The vocabulary that the packages share: what a captioner gives, what decoding returns.

Letters for tensor layouts, used everywhere: B images, K rows (beams, groups x beams or samples) of one image,
R = B*K rows with the rows of one image adjacent, T tokens, S memory positions, D features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Hypothesis:
    """One decoded sequence of one image, as token ids."""

    tokens: tuple[int, ...]
    """Generated ids, without prompt, start and end token."""
    logprob: float
    """Mean log-probability per generated token (the end token counts) under the model's own distribution, before
    penalties, temperature or truncation: comparable between strategies and lengths. With guidance, under the guided
    distribution: comparable at the same guidance only."""
    score: float
    """What the strategy ranked by; only comparable within one call."""
    finish_reason: FinishReason
    """``stop``: the model ended the caption; ``length``: it was cut at ``max_tokens``."""


@dataclass(frozen=True)
class Caption:
    """One caption of one image."""

    text: str
    logprob: float
    tokens: int
    """Generated tokens, the end token included."""
    finish_reason: FinishReason
    clip_score: float | None = None
    scorer: str | None = None


@dataclass(frozen=True)
class TeacherForced:
    """Outputs of one teacher-forced pass; what was not asked for is None.

    Where only some positions were asked for, logits and states are (N, V) and (N, D), in the order of the rows.
    """

    logits: torch.Tensor | None  # (R, T, V); position t predicts token t+1
    states: torch.Tensor | None = None  # (R, T, D): what the output layer turns into logits
    hidden_states: tuple[torch.Tensor, ...] | None = None  # per decoder layer (R, T, D)
    self_attentions: tuple[torch.Tensor, ...] | None = None  # per decoder layer (R, H, T, T)
    cross_attentions: tuple[torch.Tensor, ...] | None = None  # per decoder layer (R, H, T, S)


@dataclass
class DecodeState:
    """What a family keeps between steps. Only the family looks inside; the loop passes it back."""

    memory: Any
    """The image memory of B images, shared by the K rows of each: never copied per row."""
    cache: Any
    """Keys and values of self-attention, R rows."""
    extra: dict[str, Any] = field(default_factory=dict)


class Captioner(Protocol):
    """What every family gives. Families with weights derive from ``models.families.base.TorchCaptioner``."""

    family: ClassVar[str]
    capabilities: frozenset[str]
    """Any of ``prompt`` (accepts a text prompt), ``null_memory`` (can decode without the picture), ``packing`` (a row
    of the teacher-forced pass may hold several captions), ``joining`` (states can be merged between steps),
    ``shared_steps`` (several states can take a step together)."""
    vocab_size: int
    start_id: int
    end_id: int
    max_positions: int
    """Longest prompt + generated tokens that the decoder can hold, the start token included."""

    @property
    def input_side_px(self) -> int | None:
        """The longer side at which the encoder sees pictures, whatever their size; None: they must come in full, since
        what is seen depends on more than their look."""

    def preprocess(self, image: Image) -> torch.Tensor:
        """Pixels (C, H, W), fp32, of an RGB picture from ``models.images.load_image``."""

    def encode(self, pixels: torch.Tensor) -> Any:
        """The image memory of B pictures, from pixels (B, C, H, W)."""

    def null_memory(self, batch: int) -> Any:
        """The memory that stands for "no picture"; ``unsupported_option`` where the family has none."""

    def start(self, memory: Any, prompts: list[str] | None = None) -> tuple[DecodeState, torch.Tensor]:
        """State with one row per image after the start token and the prompt, and logits (B, V) of the next token."""

    def step(self, state: DecodeState, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (R, V) after appending ``tokens`` (R,) to the rows; ``state`` is changed in place."""

    def step_together(self, states: Sequence[DecodeState], tokens: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What ``step`` gives for each of several states, which may have different numbers of rows per image and be of
        any age: one product with each weight for all their rows. Only of families with ``shared_steps``."""

    def reorder(self, state: DecodeState, rows: torch.Tensor) -> None:
        """Replace row r by the old row ``rows[r]``; ``rows`` (R',) may be longer than R to widen the rows of each
        image, and always keeps the rows of one image adjacent and as many for each. The memory stays as it is."""

    def merge(self, states: Sequence[DecodeState]) -> DecodeState:
        """One state with the images of all ``states`` in order, which have equally many rows per image and may have
        been advanced by different numbers of steps: every row goes on as it would have gone on by itself. The states
        given must not be used any more. Only of families that can do ``joining``, else ``unsupported_option``."""

    def keep(self, state: DecodeState, images: torch.Tensor) -> None:
        """Drop all images of ``state`` but ``images`` (B',), which are in that order from now on: their memory, their
        rows, and what was held only to line them up with others. At least one image stays."""

    def forward_teacher(
        self,
        memory: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        *,
        segments: torch.Tensor | None = None,
        at: torch.Tensor | None = None,
        output_logits: bool = True,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> TeacherForced:
        """One teacher-forced pass over ``input_ids`` (R, T), which begin with the start token; R is a multiple of the
        memory's B, with the captions of one image adjacent.

        Args:
            attention_mask: (R, T), 1 for tokens and 0 for the padding on their right.
            segments: (R, T), for families that can do ``packing``: a row holds several captions, whose tokens share a
                number; -1 for padding. Each caption sees itself only, from position 0 on.
            at: (R, T), bool: the positions whose logits and states are wanted; None: all.
            output_logits: False saves the output layer, the costliest, for a caller that needs few logits.
        """

    def tokenize(self, texts: list[str], max_tokens: int) -> list[list[int]]:
        """Ids of each caption without start and end token, at most ``max_tokens``."""

    def detokenize(self, tokens: tuple[int, ...] | list[int]) -> str:
        """The text of generated ids."""
