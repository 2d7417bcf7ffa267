"""Stage two: open_clip's own text tower learns the teacher's text vectors, and both towers the contrastive loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.scorer.config import Config
from training.scorer.corpus import Corpus
from training.scorer.dual_encoder import TextTower
from training.scorer.losses import contrastive, cosine_distance, ranking_divergence
from training.scorer.minilm import by_length, pad_ids
from training.scorer.stage import unit

SLOW = ("image.", "text.model.logit_scale")
_UNKNOWN_ID, _LAST_SPECIAL_ID = 1, 3
_TEXTS_PER_PASS = 250


@dataclass(frozen=True)
class Targets:
    """Unit vectors of the teacher, fp16."""

    captions: Tensor
    """(N, D) of the training captions."""
    spliced: Tensor
    """(M, D) of the made texts."""
    pictures: Tensor
    """(B, D) of the training pictures, plain view."""
    bank: Tensor
    """(B, D) of the training pictures, mean over the plain and the mirrored view."""


class Student(nn.Module):
    """The open_clip model that is shipped, in training."""

    bank: Tensor

    def __init__(self, image: nn.Module, text: TextTower, tokenizer: Tokenizer, bank: Tensor, config: Config) -> None:
        super().__init__()
        self.image = image
        self.text = text
        self.register_buffer("bank", bank.float(), persistent=False)
        self._tokenizer = tokenizer
        self._config = config

    def forward(
        self,
        grid: Tensor,
        captions: list[Tensor],
        spliced: list[Tensor],
        text_targets: Tensor,
        image_targets: Tensor,
        same_text: Tensor,
    ) -> dict[str, Tensor]:
        settings, train = self._config.student, self._config.train
        images = unit(self.image(grid))
        texts = unit(torch.cat([self.text(self._hide(ids)) for ids in (*captions, *spliced)]))
        scale = self.text.model.logit_scale.exp().clamp(max=train.max_logit_scale)
        parts = {
            "cosine": cosine_distance(texts, text_targets),
            "ranking": ranking_divergence(texts, text_targets, self.bank, settings.ranking_scale),
            "contrastive": contrastive(images, texts[: len(images)], scale, same_text, train.label_smoothing),
            "image": cosine_distance(images, image_targets),
        }
        total = sum(getattr(settings, f"{name}_weight") * value for name, value in parts.items())
        return {"loss": torch.as_tensor(total), **{name: value.detach() for name, value in parts.items()}}

    def tokenize(self, texts: Sequence[str], prefixed: Sequence[bool]) -> list[list[int]]:
        """Ids of each text, cut to the context with the end token kept."""
        model = self._config.model
        lead = [model.prefix + text if with_prefix else text for text, with_prefix in zip(texts, prefixed, strict=True)]
        rows = [encoding.ids for encoding in self._tokenizer.encode_batch(lead)]
        return [
            row if len(row) <= model.context_length else [*row[: model.context_length - 1], row[-1]] for row in rows
        ]

    @torch.no_grad()
    def encode_captions(self, corpus: Corpus, prefix: bool) -> Tensor:
        """Unit vectors (N, D)."""
        ids = self.tokenize(corpus.captions, [prefix] * len(corpus.captions))
        vectors = torch.empty(len(ids), self.bank.shape[1])
        for part in by_length([len(row) for row in ids], _TEXTS_PER_PASS):
            vectors[torch.tensor(part)] = unit(self.text(pad_ids([ids[text] for text in part])[0]))
        return vectors

    def _hide(self, ids: Tensor) -> Tensor:
        """The ids (N, T), in training with some pieces unknown: unseen words must not throw the tower off."""
        share = self._config.student.unknown_share
        if not self.training or not share:
            return ids
        chosen = (torch.rand(ids.shape, device=ids.device) < share) & (ids > _LAST_SPECIAL_ID)
        return ids.masked_fill(chosen, _UNKNOWN_ID)


def student_batches(student: Student, corpus: Corpus, spliced: Sequence[str], targets: Targets, config: Config) -> Any:
    """The draw of one batch: as many captions as pictures, then texts that have no picture."""
    settings, size = config.student, config.train.texts_per_pass

    def passes(texts: Sequence[str], rng: np.random.Generator) -> tuple[np.ndarray, list[Tensor]]:
        ids = student.tokenize(texts, (rng.random(len(texts)) < settings.prefix_share).tolist())
        parts = by_length([len(row) for row in ids], size)
        order = np.array([text for part in parts for text in part], dtype=np.int64)
        return order, [pad_ids([ids[text] for text in part])[0] for part in parts]

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        pictures, views, captions = corpus.draw(settings.batch_size, rng)
        order, caption_ids = passes([corpus.captions[caption] for caption in captions], rng)
        pictures, views, captions = pictures[order], views[order], captions[order]
        made = rng.integers(0, len(spliced), settings.spliced_per_step if spliced else 0)
        made_order, made_ids = passes([spliced[text] for text in made], rng)
        return {
            "grid": corpus.grid(pictures.tolist(), views.tolist()),
            "captions": caption_ids,
            "spliced": made_ids,
            "text_targets": torch.cat([targets.captions[captions], targets.spliced[made[made_order]]]).float(),
            "image_targets": targets.pictures[pictures].float(),
            "same_text": corpus.same_text(captions),
        }

    return draw
