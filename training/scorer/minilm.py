"""The teacher's text tower: MiniLM with its upper layers trained and a pooling head. N texts, T tokens, D features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu
from transformers import BertModel

from training.packages import minilm_folder

_QUERIES = 4
_TEXTS_PER_PASS = 128


def load_minilm(dropout: float = 0.0) -> Any:
    """MiniLM as a transformers ``BertModel``, with ``dropout`` on what each sub-layer gives.

    Raises:
        MissingDependencyError: the package with its weights is not installed.
    """
    # Plain products are faster to differentiate on a CPU than torch's fused attention.
    return BertModel.from_pretrained(minilm_folder(), attn_implementation="eager", hidden_dropout_prob=dropout)


class MiniLmTower(nn.Module):
    """Two halves, so that training computes what the frozen lower layers give only once."""

    def __init__(self, dim: int, *, trained_layers: int, rate: float, max_tokens: int = 48) -> None:
        super().__init__()
        bert = load_minilm(rate)
        split = len(bert.encoder.layer) - trained_layers
        self.embeddings = bert.embeddings.requires_grad_(False)
        self.lower = bert.encoder.layer[:split].requires_grad_(False)
        self.upper = bert.encoder.layer[split:]
        width = bert.config.hidden_size
        self.queries = nn.Linear(width, _QUERIES)
        self.hidden = nn.Linear(width * (_QUERIES + 1), 2 * dim)
        self.out = nn.Linear(2 * dim, dim)
        self._rate = rate
        self._tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, start and end token included."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def encode_lower(self, ids: Tensor, mask: Tensor) -> Tensor:
        """States (N, T, W) below the trained layers; ``mask`` (N, T) is True for tokens."""
        states = self.embeddings(ids)
        for layer in self.lower:
            states = layer(states, _additive(mask, states.dtype))
        return states  # type: ignore[no-any-return]

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """(N, D), not normalised: the mean over tokens and four learned averages, through a hidden layer."""
        for layer in self.upper:
            states = layer(states, _additive(mask, states.dtype))
        shares = self.queries(states).float().masked_fill(~mask[..., None], -1e4).softmax(dim=1).to(states.dtype)
        averages = torch.einsum("ntq,ntw->nqw", shares, states).flatten(1)
        mean = (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        pooled = dropout(torch.cat([mean, averages], dim=1), self._rate, self.training)
        return self.out(dropout(gelu(self.hidden(pooled)), self._rate, self.training))  # type: ignore[no-any-return]


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """(N, 1, 1, T), very negative where no token is."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -1e4)[:, None, None]


@dataclass(frozen=True)
class LowerStates:
    """States below the trained layers of many texts, without padding: one row per token, fp16."""

    rows: Tensor
    starts: Tensor
    """(N + 1,): where the rows of each text begin."""

    def lengths(self) -> list[int]:
        """Tokens of each text."""
        return self.starts.diff().tolist()

    def pad(self, texts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """States (n, T, W), fp32, and mask (n, T) of the texts with these numbers."""
        pieces = [self.rows[self.starts[text] : self.starts[text + 1]].float() for text in texts]
        return nn.utils.rnn.pad_sequence(pieces, batch_first=True), _mask([len(piece) for piece in pieces])


@torch.inference_mode()
def lower_states(tower: MiniLmTower, texts: Sequence[str]) -> LowerStates:
    """What the frozen layers make of ``texts``."""
    ids = tower.tokenize(texts)
    starts = torch.tensor([0, *map(len, ids)]).cumsum(dim=0)
    rows = torch.empty(int(starts[-1]), tower.queries.in_features, dtype=torch.float16)
    for part in by_length([len(row) for row in ids], _TEXTS_PER_PASS):
        padded, mask = pad_ids([ids[text] for text in part])
        states = tower.encode_lower(padded, mask)
        for row, text in enumerate(part):
            rows[starts[text] : starts[text + 1]] = states[row, : len(ids[text])].half()
    return LowerStates(rows, starts)


def by_length(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Numbers of the texts, shortest first, in parts of ``size``: texts of like length need little padding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + size] for start in range(0, len(order), size)]


def pad_ids(ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Ids (n, T) padded with 0, and the mask (n, T) of tokens."""
    padded = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], batch_first=True)
    return padded, _mask([len(row) for row in ids])


def _mask(lengths: Sequence[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
