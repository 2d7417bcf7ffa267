"""A captioner without weights: the same picture always gets the same words. It drives contract and load tests."""

from collections.abc import Sequence
from typing import ClassVar
from zlib import crc32

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from models.errors import RequestError
from models.interfaces import DecodeState, TeacherForced
from models.rows import rows_of

_SLOTS = (
    "a one this some any that every another".split(),
    "red small old wooden bright quiet tall striped".split(),
    "dog boat child street horse table mountain kite".split(),
    "near above beside under behind inside holding watching".split(),
)
_WORDS = [word for slot in _SLOTS for word in slot]
_END, _START, _FIRST_WORD = 0, 1, 2
_FEWEST_WORDS, _MOST_WORDS = 4, 12
_THUMBNAIL_PX = 8
_PRIME = 6364136223846793005


class FakeCaptioner:
    """Logits that are a hash of the picture's thumbnail and of the text so far.

    Words take turns by kind (article, adjective, noun, link), so captions read like "a red dog near every boat". Text
    ends after 4 to 12 words, a prompt's words included. Memory: one number per picture (B,).
    """

    family: ClassVar[str] = "fake"
    capabilities = frozenset({"prompt", "joining"})
    vocab_size = _FIRST_WORD + len(_WORDS)
    start_id = _START
    end_id = _END
    max_positions = 128

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        kinds = [-1, -1] + [kind for kind, slot in enumerate(_SLOTS) for _ in slot]
        self._kind_of_token = torch.tensor(kinds, device=self._device)  # (V,)
        self._tokens = torch.arange(self.vocab_size, device=self._device)

    @classmethod
    def load(cls, source: str = "", *, device: torch.device | str = "cpu", dtype: object = None) -> "FakeCaptioner":
        """The one fake captioner; there is nothing to load from ``source`` and no dtype to convert to."""
        return cls(device)

    @property
    def input_side_px(self) -> None:
        """None: other rounding makes other words."""

    def preprocess(self, image: Image.Image) -> Tensor:
        """A thumbnail (3, 8, 8) in 0..1."""
        size = (_THUMBNAIL_PX, _THUMBNAIL_PX)
        thumbnail = np.array(image.resize(size, Image.Resampling.BOX), dtype=np.float32) / 255
        return torch.from_numpy(thumbnail).permute(2, 0, 1)

    def encode(self, pixels: Tensor) -> Tensor:
        """Memory (B,), int64, of pixels (B, 3, 8, 8)."""
        levels = (pixels.to(self._device) * 255).round().long().flatten(1)
        memory = torch.zeros_like(levels[:, 0])
        for column in levels.unbind(1):
            memory = _mix(memory, column)
        return memory

    def null_memory(self, batch: int) -> Tensor:
        """No memory: ``unsupported_option``."""
        raise RequestError("unsupported_option", "the family 'fake' cannot caption without a picture")

    def start(self, memory: Tensor, prompts: list[str] | None = None) -> tuple[DecodeState, Tensor]:
        batch = memory.shape[0]
        texts = self.tokenize(prompts, self.max_positions) if prompts else [[]] * batch
        text = [_read(tokens) for tokens in texts]
        cache = torch.tensor(text, device=self._device)  # (B, 2): hash and number of words so far
        return DecodeState(memory=memory, cache=cache), self._logits(memory, cache)

    def step(self, state: DecodeState, tokens: Tensor) -> Tensor:
        state.cache = _append(state.cache, tokens)
        return self._logits(state.memory, state.cache)

    def reorder(self, state: DecodeState, rows: Tensor) -> None:
        state.cache = state.cache[rows]

    def merge(self, states: Sequence[DecodeState]) -> DecodeState:
        memories, caches = zip(*((state.memory, state.cache) for state in states), strict=True)
        return DecodeState(torch.cat(memories), torch.cat(caches))

    def keep(self, state: DecodeState, images: Tensor) -> None:
        state.cache = state.cache[rows_of(images, len(state.cache) // len(state.memory))]
        state.memory = state.memory[images]

    def forward_teacher(
        self,
        memory: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        *,
        segments: Tensor | None = None,
        at: Tensor | None = None,
        output_logits: bool = True,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> TeacherForced:
        """One pass with a single "layer": its hidden states are the logits, its attention is uniform."""
        rows, length = input_ids.shape
        cache = torch.zeros(rows, 2, dtype=torch.long, device=self._device)
        steps = []
        for tokens in input_ids.unbind(1):
            cache = torch.where((tokens == _START).unsqueeze(1), cache, _append(cache, tokens))
            steps.append(self._logits(memory, cache))
        logits = torch.stack(steps, dim=1)
        causal = torch.ones(length, length, device=self._device).tril()
        causal = causal / causal.sum(dim=-1, keepdim=True)
        wanted = logits if at is None else logits[at]
        return TeacherForced(
            logits=wanted if output_logits else None,
            states=wanted,
            hidden_states=(logits,) if output_hidden_states else None,
            self_attentions=(causal.expand(rows, 1, -1, -1),) if output_attentions else None,
            cross_attentions=(logits.new_ones(rows, 1, length, 1),) if output_attentions else None,
        )

    def tokenize(self, texts: list[str], max_tokens: int) -> list[list[int]]:
        return [[_token(word) for word in text.lower().split()[:max_tokens]] for text in texts]

    def detokenize(self, tokens: tuple[int, ...] | list[int]) -> str:
        return " ".join(_WORDS[token - _FIRST_WORD] for token in tokens if token >= _FIRST_WORD)

    def _logits(self, memory: Tensor, cache: Tensor) -> Tensor:
        """Logits (R, V) from memory (B,) and the text so far (R, 2)."""
        text, words = cache.unbind(1)
        picture = memory.unsqueeze(1).expand(-1, len(text) // len(memory)).reshape(-1)  # a number per row, no features
        seen = _mix(picture, text)
        noise = (_mix(seen.unsqueeze(1), self._tokens) >> 40).double().abs() / 2**23  # (R, V) in 0..1
        in_turn = self._kind_of_token == (words % len(_SLOTS)).unsqueeze(1)
        logits = 6 * noise - 12 * ~in_turn
        length = _FEWEST_WORDS + picture % (_MOST_WORDS - _FEWEST_WORDS)  # the picture's favourite
        end = torch.where(words < _FEWEST_WORDS, -30.0, 4.0 * (words - length) + 6)
        end = torch.where(words >= _MOST_WORDS, 30.0, end)
        logits[:, _END], logits[:, _START] = end, -60.0
        return logits.float()


def _mix(state: Tensor, value: Tensor) -> Tensor:
    """A well-spread int64 hash of two int64 tensors; overflow wraps around."""
    mixed = (state ^ (value + 0x9E3779B9)) * _PRIME + 1442695040888963407
    return (mixed ^ (mixed >> 29)) * _PRIME


def _append(cache: Tensor, tokens: Tensor) -> Tensor:
    """Hash and number of words (R, 2) of the text with ``tokens`` (R,) appended."""
    text, words = cache.unbind(1)
    return torch.stack((_mix(text, tokens), words + 1), dim=1)


def _read(tokens: list[int]) -> list[int]:
    cache = torch.zeros(1, 2, dtype=torch.long)
    for token in tokens:
        cache = _append(cache, torch.tensor([token]))
    return [int(value) for value in cache[0]]


def _token(word: str) -> int:
    """A word's id; words outside the vocabulary share the ids of those in it."""
    index = _WORDS.index(word) if word in _WORDS else crc32(word.encode()) % len(_WORDS)
    return _FIRST_WORD + index
