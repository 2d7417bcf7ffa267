"""What a decoder is made of, once its weights are packed: the same for the BERT and the GPT-2 kind."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from models.families.fused.linears import Linear


@dataclass(frozen=True)
class Norm:
    """A layer norm over the last dimension."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


def norm_of(module: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    """The module's, computed in ``dtype``."""
    return Norm(module.weight.detach().to(dtype), module.bias.detach().to(dtype), module.eps)


@dataclass(frozen=True)
class Layer:
    """Self-attention, attention to the memory, and the network after them; each with the norm that belongs to it."""

    qkv: Linear  # D -> 3 x H x D/H
    own_out: Linear
    own_norm: Norm
    query: Linear
    memory_keys_values: Linear  # memory's D -> 2 x H x D/H
    cross_out: Linear
    cross_norm: Norm
    up: Linear
    activation: Callable[[Tensor], Tensor]
    down: Linear
    mlp_norm: Norm
    scale: float
    """What products of queries and keys are multiplied by."""


@dataclass(frozen=True)
class Parts:
    """A decoder."""

    embed: Callable[[Tensor, Tensor], Tensor]
    """States (R, T, D) of ids (R, T) at positions (R or 1, T)."""
    layers: tuple[Layer, ...]
    head: Callable[[Tensor], Tensor]
    """Logits (R, V) of states (R, D)."""
    heads: int
    norm_first: bool
    """Whether the norms stand before the attentions (GPT-2) or after the sums (BERT)."""
    max_positions: int
