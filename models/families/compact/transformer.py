"""The transformer of the compact family: pre-norm layers whose cross-attention shares one memory among K rows."""

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

    def step(self, x: Tensor, memory: KeyValue, cache: StepCache, number: int, bias: Tensor) -> Tensor:
        """Output (R, D) for one more token of each row; ``bias`` (P*H, Q, N) is the cache's, for every head.

        ``cache`` keeps this layer's keys and values as number ``number``; the keys of ``memory`` are scaled already.
        """
        pools = cache.pools
        normed = self.self_norm(x).view(pools, -1, x.shape[1])  # (R, D) -> (P, Q, D)
        attention = self.self_attention
        key, value = _linear(attention.key_value, normed).chunk(2, dim=-1)
        keys, values = cache.write(number, attention.split_heads(key), attention.split_heads(value))
        query = attention.split_heads(_linear(attention.query, normed)).flatten(0, 1)  # (P*H, Q, D/H)
        scale = query.shape[-1] ** -0.5
        scores = torch.baddbmm(bias, query, keys.flatten(0, 1).transpose(1, 2), alpha=scale)
        x = x + _linear(attention.out, _joined(scores.softmax(-1) @ values.flatten(0, 1), pools))

        attention = self.cross_attention
        keys, values = memory
        images = len(keys)
        normed = self.cross_norm(x).view(images, -1, x.shape[1])  # (R, D) -> (B, K, D)
        query = attention.split_heads(_linear(attention.query, normed)).flatten(0, 1)
        weights = (query @ keys.flatten(0, 1).transpose(1, 2)).softmax(-1)
        x = x + _linear(attention.out, _joined(weights @ values.flatten(0, 1), images))
        widen, activate, narrow = self.feed_forward
        return x + _linear(narrow, activate(_linear(widen, self.feed_forward_norm(x))))


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return PACKED.linear(x, layer.weight, layer.bias)


def _joined(heads: Tensor, groups: int) -> Tensor:
    """(N*H, Q, D/H) -> (N*Q, D), where there are ``groups`` N."""
    return torch.unflatten(heads, 0, (groups, -1)).transpose(1, 2).flatten(2).flatten(0, 1)
