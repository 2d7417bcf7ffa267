"""Stage one: MiniLM's upper layers and the image tower, by the contrastive loss alone."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.scorer.config import Config
from training.scorer.corpus import Corpus
from training.scorer.losses import contrastive
from training.scorer.minilm import LowerStates, MiniLmTower, by_length, lower_states, pad_ids
from training.scorer.stage import unit

SLOW = ("image.visual.trunk", "text.upper")
_TEXTS_PER_PASS = 250


class Teacher(nn.Module):
    """The image tower that is shipped, and a text tower that is not."""

    def __init__(self, image: nn.Module, text: MiniLmTower, config: Config) -> None:
        super().__init__()
        self.image = image
        self.text = text
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self._config = config
        self._states: dict[int, LowerStates] = {}

    def forward(self, grid: Tensor, states: list[Tensor], masks: list[Tensor], same_text: Tensor) -> dict[str, Tensor]:
        texts = torch.cat([self.text(*part) for part in zip(states, map(self._thin, masks), strict=True)])
        train = self._config.train
        scale = self.log_scale.exp().clamp(max=train.max_logit_scale)
        loss = contrastive(unit(self.image(grid)), unit(texts), scale, same_text, train.label_smoothing)
        return {"loss": loss}

    def states_of(self, corpus: Corpus) -> LowerStates:
        """What MiniLM's frozen layers make of the corpus's captions, computed once."""
        if id(corpus) not in self._states:
            with torch.autocast("cpu", torch.bfloat16, enabled=self._config.train.bf16):
                self._states[id(corpus)] = lower_states(self.text, corpus.captions)
        return self._states[id(corpus)]

    @torch.no_grad()
    def encode_captions(self, corpus: Corpus, prefix: bool = False) -> Tensor:
        """Unit vectors (N, D); the teacher knows no prefix, so that ``prefix`` changes nothing."""
        states = self.states_of(corpus)
        vectors = torch.empty(len(corpus.captions), self.text.out.out_features)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._config.train.bf16):
            for part in by_length(states.lengths(), _TEXTS_PER_PASS):
                vectors[torch.tensor(part)] = unit(self.text(*states.pad(part)))
        return vectors

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors (N, D) of any texts."""
        ids = self.text.tokenize(texts)
        vectors = torch.empty(len(texts), self.text.out.out_features)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._config.train.bf16):
            for part in by_length([len(row) for row in ids], _TEXTS_PER_PASS):
                padded, mask = pad_ids([ids[text] for text in part])
                vectors[torch.tensor(part)] = unit(self.text(self.text.encode_lower(padded, mask), mask))
        return vectors

    def _thin(self, mask: Tensor) -> Tensor:
        """The mask (N, T) without some tokens, in training; the first one always stays."""
        share = self._config.teacher.token_dropout
        if not self.training or not share:
            return mask
        kept = torch.rand(mask.shape, device=mask.device) > share
        kept[:, 0] = True
        return mask & kept


def teacher_batches(teacher: Teacher, corpus: Corpus, config: Config) -> Any:
    """The draw of one batch: pictures ordered by the length of their captions, so that passes need little padding."""
    states = teacher.states_of(corpus)
    lengths = np.array(states.lengths())

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        pictures, views, captions = corpus.draw(config.teacher.batch_size, rng)
        order = np.argsort(lengths[captions], kind="stable")
        pictures, views, captions = pictures[order], views[order], captions[order]
        size = config.train.texts_per_pass
        padded = [states.pad(captions[start : start + size].tolist()) for start in range(0, len(captions), size)]
        return {
            "grid": corpus.grid(pictures.tolist(), views.tolist()),
            "states": [part[0] for part in padded],
            "masks": [part[1] for part in padded],
            "same_text": corpus.same_text(captions),
        }

    return draw
