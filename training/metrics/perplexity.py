"""Perplexity of the captions under a causal language model."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from transformers import AutoModelForCausalLM

from models.device import pick_device
from models.errors import RequestError
from models.families.hub import load_model, load_tokenizer
from training.metrics.interface import Definition, MetricInputs
from training.metrics.kinds import CorpusMetric

Counts = tuple[float, int]
"""Of one caption: the summed negative log-likelihood of its scored tokens in nats, and their number."""

_IGNORED = -100


class Perplexity(CorpusMetric[Counts]):
    """exp of the mean negative log-likelihood, over all tokens, and the mean of each caption's own."""

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        model: str
        """A causal language model of transformers: a folder in hub layout, or a hub id."""
        start_token: bool = True
        """Put the model's start token first, so that a caption's first token is scored as well."""
        as_sentence: bool = False
        """Write a capital first letter and a full stop, as most text that language models learn from has them."""
        batch_size: int = Field(default=32, ge=1)
        device: str = "auto"

    def __init__(self, options: Any) -> None:
        """Loads the language model.

        Raises:
            CheckpointError: it is not there, or damaged.
            RequestError: there is no such device; ``unsupported_option``, the model has no start token.
        """
        super().__init__(options)
        source = self.options.model
        self._device = pick_device(self.options.device)
        model_class: Any = AutoModelForCausalLM
        self._model = load_model(source, model_class, device=self._device, dtype=torch.float32)
        self._tokenizer: Any = load_tokenizer(source)
        self._start = self._start_ids() if self.options.start_token else []

    def definitions(self) -> dict[str, Definition]:
        form = "as a sentence" if self.options.as_sentence else "as it is"
        first = "after the start token" if self.options.start_token else "first token not scored"
        text = f"under {self.options.model}, each caption alone, {form}, {first}, end not scored"
        return {
            "perplexity": Definition(f"exp(total negative log-likelihood / all tokens) {text}"),
            "mean_perplexity": Definition(f"mean over captions of exp(negative log-likelihood per token) {text}"),
        }

    def counts(self, inputs: MetricInputs) -> list[Counts]:
        texts = [_sentence(text) if self.options.as_sentence else text for text in inputs.captions]
        size = self.options.batch_size
        return [count for start in range(0, len(texts), size) for count in self._score(texts[start : start + size])]

    def combine(self, counts: Sequence[Counts]) -> dict[str, float]:
        scored = [(total, tokens) for total, tokens in counts if tokens]
        if not scored:
            return {"perplexity": 0.0, "mean_perplexity": 0.0}
        mean = sum(total for total, _ in scored) / sum(tokens for _, tokens in scored)
        own = (math.exp(total / tokens) for total, tokens in scored)
        return {"perplexity": math.exp(mean), "mean_perplexity": statistics.fmean(own)}

    def notes(self, inputs: MetricInputs) -> tuple[str, ...]:
        empty = sum(not caption.strip() for caption in inputs.captions)
        return (f"{empty} empty captions left out",) if empty else ()

    def _start_ids(self) -> list[int]:
        token = self._tokenizer.bos_token_id
        if token is None:
            raise RequestError("unsupported_option", f"{self.options.model} has no start token; set start_token=false")
        return [token]

    def _score(self, texts: Sequence[str]) -> list[Counts]:
        ids = [self._start + self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        longest = getattr(self._model.config, "max_position_embeddings", None)
        rows = [row[:longest] for row in ids]
        width = max(2, *map(len, rows))  # two: a model takes no empty rows, and one position predicts nothing
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=self._device)  # (B, T)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self._device)
        with torch.inference_mode():
            # Padding is on the right, where no token of the caption sees it, so the mask only marks targets.
            logits = self._model(input_ids=tokens).logits[:, :-1].float()
        targets = tokens[:, 1:].masked_fill(mask[:, 1:] == 0, _IGNORED)
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")  # (B, T-1)
        totals, counts = losses.sum(dim=1).tolist(), (targets != _IGNORED).sum(dim=1).tolist()
        return list(zip(totals, counts, strict=True))


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith((".", "!", "?")) else ".")
