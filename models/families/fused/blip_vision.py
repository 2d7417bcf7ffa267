"""BLIP's vision encoder over packed weights, with attention by the kernel that is fastest in its dtype."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from models.families.fused.linears import Linear, Pack, with_activation
from models.families.fused.parts import Norm, norm_of

_HEADS_TOGETHER = 3


@dataclass(frozen=True)
class _Block:
    norm: Norm
    qkv: Linear
    out: Linear
    mlp_norm: Norm
    up: Linear
    """With the activation."""
    down: Linear


@dataclass(frozen=True, eq=False)
class FusedVision:
    """A ``BlipVisionModel``: its last hidden states (B, S, D) from pixels (B, 3, H, W)."""

    embed: Callable[[Tensor], Tensor]
    blocks: tuple[_Block, ...]
    last_norm: Norm
    heads: int
    scale: float
    dtype: torch.dtype
    """Of the sums between the blocks."""

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        embedded = self.embed(pixels)
        x = embedded.to(self.dtype)
        for block in self.blocks:
            x = x + self._attention(block, block.norm(x).to(embedded.dtype)).to(self.dtype)
            x = x + block.down(block.up(block.mlp_norm(x).to(embedded.dtype))).to(self.dtype)
        return self.last_norm(x).to(embedded.dtype)

    def _attention(self, block: _Block, x: Tensor) -> Tensor:
        images, positions, _ = x.shape
        qkv = block.qkv(x).view(images, positions, 3, self.heads, -1)
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4).unbind()  # (B, H, S, D/H)
        return block.out(attend(queries, keys, values, self.scale).reshape(images, positions, -1))


def attend(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attention of (B, H, S, D/H), as (B, S, H, D/H)."""
    if queries.dtype != torch.bfloat16 or queries.device.type != "cpu":
        return scaled_dot_product_attention(queries, keys, values, scale=scale).transpose(1, 2)
    # The fused kernel converts bf16, products multiply it; weights of few heads at a time stay in the core's cache.
    images, heads, positions, features = queries.shape
    mixed = queries.new_empty(images, positions, heads, features)
    for image in range(images):
        for first in range(0, heads, _HEADS_TOGETHER):
            some = (image, slice(first, first + _HEADS_TOGETHER))
            shares = ((queries[some] * scale) @ keys[some].transpose(-1, -2)).softmax(dim=-1)
            mixed[image, :, some[1]] = (shares @ values[some]).transpose(0, 1)
    return mixed


def read_blip_vision(model: Any, pack: Pack, dtype: torch.dtype) -> FusedVision:
    """The encoder of a ``BlipVisionModel``."""
    attention = model.encoder.layers[0].self_attn
    return FusedVision(
        embed=model.embeddings,
        blocks=tuple(
            _Block(
                norm=norm_of(layer.layer_norm1, dtype),
                qkv=pack(layer.self_attn.qkv.weight, layer.self_attn.qkv.bias),
                out=pack(layer.self_attn.projection.weight, layer.self_attn.projection.bias),
                mlp_norm=norm_of(layer.layer_norm2, dtype),
                up=with_activation(pack(layer.mlp.fc1.weight, layer.mlp.fc1.bias), layer.mlp.activation_fn),
                down=pack(layer.mlp.fc2.weight, layer.mlp.fc2.bias),
            )
            for layer in model.encoder.layers
        ),
        last_norm=norm_of(model.post_layernorm, dtype),
        heads=attention.num_heads,
        scale=attention.scale,
        dtype=dtype,
    )
