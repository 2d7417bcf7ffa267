"""The parts of GPT-2 decoders with cross-attention."""

from typing import Any

import torch
from torch import Tensor

from models.families.fused.linears import Linear, Pack
from models.families.fused.parts import Layer, Parts, norm_of


def read_gpt2(decoder: Any, pack: Pack, dtype: torch.dtype) -> Parts:
    """Parts of a ``GPT2LMHeadModel``; states between products are in ``dtype``."""
    config, base = decoder.config, decoder.transformer
    words: Tensor = base.wte.weight.detach()
    positions: Tensor = base.wpe.weight.detach()
    last_norm, project = norm_of(base.ln_f, dtype), pack(decoder.lm_head.weight, decoder.lm_head.bias)

    def embed(ids: Tensor, at: Tensor) -> Tensor:
        return words[ids].to(dtype) + positions[at].to(dtype)

    return Parts(
        embed=embed,
        layers=tuple(_layer(block, config, number, pack, dtype) for number, block in enumerate(base.h)),
        head=lambda states: project(last_norm(states)),
        heads=config.num_attention_heads,
        norm_first=True,
        max_positions=config.max_position_embeddings,
    )


def _layer(block: Any, config: Any, number: int, pack: Pack, dtype: torch.dtype) -> Layer:
    scale = (config.hidden_size // config.num_attention_heads) ** -0.5 if config.scale_attn_weights else 1.0
    if config.scale_attn_by_inverse_layer_idx:
        scale /= number + 1
    return Layer(
        qkv=_pack(block.attn.c_attn, pack),
        own_out=_pack(block.attn.c_proj, pack),
        own_norm=norm_of(block.ln_1, dtype),
        query=_pack(block.crossattention.q_attn, pack),
        memory_keys_values=_pack(block.crossattention.c_attn, pack),
        cross_out=_pack(block.crossattention.c_proj, pack),
        cross_norm=norm_of(block.ln_cross_attn, dtype),
        up=_pack(block.mlp.c_fc, pack),
        activation=block.mlp.act,
        down=_pack(block.mlp.c_proj, pack),
        mlp_norm=norm_of(block.ln_2, dtype),
        scale=scale,
    )


def _pack(module: Any, pack: Pack) -> Linear:
    """A ``Conv1D`` of transformers: its weight is (K, N)."""
    return pack(module.weight.t(), module.bias)
