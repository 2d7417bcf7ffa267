"""The transformer of the compact family: pre-norm layers whose cross-attention shares one memory among K rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.families.compact.config import CompactConfig
from models.families.compact.step_cache import KeyValue, StepCache
from models.packed_weights import PACKED


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Attention output (N, H, Q, d) and weights (N, H, Q, S) of query (N, H, Q, d) on key and value (N, H, S, d).

    ``mask`` is True where attention is allowed, broadcast to (N, H, Q, S). Plain products and softmax: on CPU the
    backward pass of the fused kernel is slower at these sizes.
    """
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    return weights @ value, weights


class Attention(nn.Module):
    """Multi-head attention with separate projections, so that keys and values can be computed once and kept."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def split_heads(self, x: Tensor) -> Tensor:
        """(N, T, D) -> (N, H, T, D/H)."""
        return torch.unflatten(x, -1, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, source: Tensor) -> KeyValue:
        """Key and value, each (N, H, S, D/H), of ``source`` (N, S, D)."""
        key, value = self.key_value(source).chunk(2, dim=-1)
        return self.split_heads(key), self.split_heads(value)

    def forward(self, x: Tensor, key_value: KeyValue, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        out, weights = attend(self.split_heads(self.query(x)), *key_value, mask)
        return self.out(out.transpose(1, 2).flatten(2)), weights


class FeedForward(nn.Sequential):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class EncoderLayer(nn.Module):
    """Pre-norm self-attention layer over the image grid: (B, S, D) -> (B, S, D)."""

    def __init__(self, config: CompactConfig, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config.width, config.heads)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.feed_forward)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.attention_norm(x)
        x = x + self.dropout(self.attention(normed, self.attention.keys_values(normed))[0])
        out: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return out


class DecoderLayer(nn.Module):
    """Pre-norm decoder layer: causal self-attention, cross-attention to a shared memory, feed-forward."""

    def __init__(self, config: CompactConfig, dropout: float) -> None:
        super().__init__()
        self.self_norm = nn.LayerNorm(config.width)
        self.self_attention = Attention(config.width, config.heads)
        self.cross_norm = nn.LayerNorm(config.width)
        self.cross_attention = Attention(config.width, config.heads)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config.width, config.feed_forward)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: KeyValue, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Output (R, T, D) and both attention weights.

        ``memory`` holds B images; the R = B*K rows of ``x`` are folded into the queries (B, K*T, D) of their image, so
        that keys and values exist once per image.
        """
        normed = self.self_norm(x)
        out, self_weights = self.self_attention(normed, self.self_attention.keys_values(normed), mask)
        x = x + self.dropout(out)

        rows, tokens = x.shape[:2]
        images = memory[0].shape[0]
        folded = self.cross_norm(x).reshape(images, rows // images * tokens, -1)  # (R, T, D) -> (B, K*T, D)
        out, cross_weights = self.cross_attention(folded, memory)
        x = x + self.dropout(out.reshape(rows, tokens, -1))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))

        # (B, H, K*T, S) -> (R, H, T, S)
        cross_weights = torch.unflatten(cross_weights, 2, (rows // images, tokens)).transpose(1, 2).flatten(0, 1)
        return x, self_weights, cross_weights

    def step(self, x: Tensor, readers: Sequence[Reader]) -> Tensor:
        """Output (R, D) for one more token of each row; the rows of the readers stand one after the other."""
        counts = [reader.rows for reader in readers]
        attention = self.self_attention
        normed = self.self_norm(x)
        added = _linear(attention.key_value, normed).split_with_sizes(counts)
        queries = _linear(attention.query, normed).split_with_sizes(counts)
        read = [reader.read_own(*each) for reader, *each in zip(readers, queries, added, strict=True)]
        x = x + _linear(attention.out, _cat(read))

        attention = self.cross_attention
        queries = _linear(attention.query, self.cross_norm(x)).split_with_sizes(counts)
        read = [reader.read_memory(query) for reader, query in zip(readers, queries, strict=True)]
        x = x + _linear(attention.out, _cat(read))
        widen, activate, narrow = self.feed_forward
        return x + _linear(narrow, activate(_linear(widen, self.feed_forward_norm(x))))


@dataclass(frozen=True)
class Reader:
    """What the R rows of one cache attend to in one layer during a step."""

    rows: int
    """R."""
    cache: StepCache
    layer: int
    bias: Tensor
    """The cache's, (P*H, Q, N), for every head."""
    memory: KeyValue
    """Of B images, (B, H, S, D/H) each; the keys are scaled already."""

    def read_own(self, query: Tensor, key_value: Tensor) -> Tensor:
        """Self-attention (R, D) of ``query`` (R, D); the cache keeps ``key_value`` (R, 2D)."""
        pools, heads = self.cache.pools, self.memory[0].shape[1]
        key, value = _split_heads(key_value, pools, 2 * heads).chunk(2, dim=1)
        keys, values = self.cache.write(self.layer, key, value)
        query = _split_heads(query, pools, heads).flatten(0, 1)  # (P*H, Q, D/H)
        scale = query.shape[-1] ** -0.5
        scores = torch.baddbmm(self.bias, query, keys.flatten(0, 1).transpose(1, 2), alpha=scale)
        return _joined(scores.softmax(-1) @ values.flatten(0, 1), pools)

    def read_memory(self, query: Tensor) -> Tensor:
        """Cross-attention (R, D) of ``query`` (R, D)."""
        keys, values = self.memory
        images, heads = keys.shape[:2]
        query = _split_heads(query, images, heads).flatten(0, 1)  # (B*H, K, D/H)
        weights = (query @ keys.flatten(0, 1).transpose(1, 2)).softmax(-1)
        return _joined(weights @ values.flatten(0, 1), images)


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return PACKED.linear(x, layer.weight, layer.bias)


def _joined(heads: Tensor, groups: int) -> Tensor:
    """(N*H, Q, D/H) -> (N*Q, D), where there are ``groups`` N."""
    return torch.unflatten(heads, 0, (groups, -1)).transpose(1, 2).flatten(2).flatten(0, 1)


def _split_heads(x: Tensor, groups: int, heads: int) -> Tensor:
    """(N*Q, D) -> (N, H, Q, D/H), where there are ``groups`` N."""
    return torch.unflatten(x.view(groups, -1, x.shape[1]), -1, (heads, -1)).transpose(1, 2)


def _cat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
