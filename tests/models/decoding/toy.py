"""A captioner over letters whose probabilities are written by hand, and obviously right twins of the beam searches."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor

from models.interfaces import DecodeState

LETTERS = ".abcdef"  # the full stop ends a caption
END = 0
Model = Callable[[str], dict[str, float]]
"""Probability of each next letter (0 where left out) after a text."""


class ToyCaptioner:
    """One image per model; prompts are letters. The memory is the models' numbers (B,), without a picture that of
    ``null``."""

    family = "toy"
    capabilities = frozenset({"prompt", "joining"})
    end_id = END

    def __init__(
        self, *models: Model, letters: str = LETTERS, max_positions: int = 64, null: Model | None = None
    ) -> None:
        self.models, self.letters, self.max_positions = models, letters, max_positions
        if null is not None:
            self.models, self.capabilities = (*models, null), self.capabilities | {"null_memory"}
        self.vocab_size = len(letters)
        self.steps = 0
        self.memory = torch.arange(len(models))

    def null_memory(self, batch: int) -> Tensor:
        assert "null_memory" in self.capabilities
        return torch.full((batch,), len(self.models) - 1)

    def start(self, memory: Tensor, prompts: list[str] | None = None) -> tuple[DecodeState, Tensor]:
        state = DecodeState(memory, list(prompts) if prompts else [""] * len(memory))
        return state, self._logits(state)

    def step(self, state: DecodeState, tokens: Tensor) -> Tensor:
        self.steps += 1
        pairs = zip(state.cache, tokens.tolist(), strict=True)
        state.cache = [text + self.letters[token] for text, token in pairs]
        return self._logits(state)

    def reorder(self, state: DecodeState, rows: Tensor) -> None:
        before, batch = len(state.cache), len(state.memory)
        image_of_old = [row // (before // batch) for row in range(before)]
        image_of_new = [row // (len(rows) // batch) for row in range(len(rows))]
        assert [image_of_old[row] for row in rows.tolist()] == image_of_new, "a row left its image"
        state.cache = [state.cache[row] for row in rows.tolist()]

    def merge(self, states: Sequence[DecodeState]) -> DecodeState:
        return DecodeState(
            torch.cat([state.memory for state in states]), [text for state in states for text in state.cache]
        )

    def keep(self, state: DecodeState, images: Tensor) -> None:
        rows = len(state.cache) // len(state.memory)
        state.cache = [state.cache[image * rows + row] for image in images.tolist() for row in range(rows)]
        state.memory = state.memory[images]

    def tokenize(self, texts: list[str], max_tokens: int) -> list[list[int]]:
        return [[self.letters.index(letter) for letter in text][:max_tokens] for text in texts]

    def detokenize(self, tokens: tuple[int, ...] | list[int]) -> str:
        return "".join(self.letters[token] for token in tokens)

    def _logits(self, state: DecodeState) -> Tensor:
        rows_per_image = len(state.cache) // len(state.memory)
        images = state.memory.repeat_interleave(rows_per_image).tolist()
        return torch.tensor([self.logprobs(image, text) for image, text in zip(images, state.cache, strict=True)])

    def logprobs(self, image: int, text: str) -> list[float]:
        probabilities = self.models[image](text)
        return [math.log(probabilities.get(letter, 0.0) or 1e-9) for letter in self.letters]


def table(probabilities: dict[str, dict[str, float]], otherwise: dict[str, float] | None = None) -> Model:
    """A model that looks a text up; texts that are not listed get ``otherwise`` (the end)."""
    rest = {".": 1.0} if otherwise is None else otherwise
    return lambda text: probabilities.get(text, rest)


def random_model(seed: int, letters: str = LETTERS, spread: float = 1.5) -> Model:
    """Softmax of normal noise that depends on the seed and the whole text."""

    @cache
    def model(text: str) -> dict[str, float]:
        rng = np.random.default_rng([seed, *text.encode()])
        weights = np.exp(rng.normal(size=len(letters)) * spread)
        return dict(zip(letters, weights / weights.sum(), strict=True))

    return model


@dataclass
class SlowGroup:
    """Beams as (augmented score, score, text); finished ones with both scores divided by length ** penalty."""

    running: list[tuple[float, float, str]] = field(default_factory=lambda: [(0.0, 0.0, "")])
    finished: list[tuple[float, float, str]] = field(default_factory=list)
    open: bool = True


def slow_diverse_beam(
    captioner: ToyCaptioner,
    image: int,
    *,
    beams: int,
    groups: int = 1,
    diversity_penalty: float = 0.0,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
    max_tokens: int,
    prompt: str = "",
) -> list[list[tuple[str, float]]]:
    """Captions with their scores, best first, of each group: plain lists, one candidate at a time."""
    width = beams // groups
    states = [SlowGroup() for _ in range(groups)]
    for length in range(1, max_tokens + 1):
        taken: Counter[str] = Counter()
        for state in (state for state in states if state.open):
            candidates = []
            for augmented, plain, text in state.running:
                for letter, logprob in zip(captioner.letters, captioner.logprobs(image, prompt + text), strict=True):
                    push = diversity_penalty * taken[letter]
                    candidates.append((augmented + logprob - push, plain + logprob, text + letter))
            candidates = sorted(candidates, reverse=True)[: 2 * width]
            for augmented, plain, text in candidates[:width]:
                if text.endswith(".") or length == max_tokens:
                    norm = length**length_penalty
                    state.finished.append((augmented / norm, plain / norm, text))
            state.finished = sorted(state.finished, reverse=True)[:width]
            state.running = [beam for beam in candidates if not beam[2].endswith(".")][:width]
            taken.update(text[-1] for _, _, text in state.running)
            if len(state.finished) == width:
                best_running = state.running[0][0] / length**length_penalty
                state.open = not early_stopping and best_running > state.finished[-1][0]
    by_score = [sorted(state.finished, key=lambda beam: -beam[1]) for state in states]
    return [[(text, plain) for _, plain, text in group] for group in by_score]
