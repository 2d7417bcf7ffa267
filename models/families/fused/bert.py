"""The parts of BERT decoders with cross-attention, BLIP's among them."""

from typing import Any

import torch
from torch import Tensor, nn

from models.families.fused.linears import Linear, Pack
from models.families.fused.parts import Layer, Parts, norm_of


def read_bert(decoder: Any, pack: Pack, dtype: torch.dtype) -> Parts:
    """Parts of a ``BlipTextLMHeadModel`` or ``BertLMHeadModel``; states between products are in ``dtype``."""
    config, base = decoder.config, decoder.base_model
    predictions = decoder.cls.predictions
    transform, project = _pack(predictions.transform.dense, pack), _pack(predictions.decoder, pack)
    activation, norm = predictions.transform.transform_act_fn, norm_of(predictions.transform.LayerNorm, dtype)
    words = base.embeddings.word_embeddings.weight.detach()
    positions = base.embeddings.position_embeddings.weight.detach()
    types = getattr(base.embeddings, "token_type_embeddings", None)
    first_norm = norm_of(base.embeddings.LayerNorm, dtype)

    def embed(ids: Tensor, at: Tensor) -> Tensor:
        found = words[ids].to(dtype)
        if types is not None:
            found = found + types.weight[0].detach().to(dtype)
        return first_norm(found + positions[at].to(dtype))

    return Parts(
        embed=embed,
        layers=tuple(_layer(layer, pack, dtype) for layer in base.encoder.layer),
        head=lambda states: project(norm(activation(transform(states)))),
        heads=config.num_attention_heads,
        norm_first=False,
        max_positions=config.max_position_embeddings,
    )


def _layer(layer: Any, pack: Pack, dtype: torch.dtype) -> Layer:
    own, cross = layer.attention, layer.crossattention
    return Layer(
        qkv=_pack_together([own.self.query, own.self.key, own.self.value], pack),
        own_out=_pack(own.output.dense, pack),
        own_norm=norm_of(own.output.LayerNorm, dtype),
        query=_pack(cross.self.query, pack),
        memory_keys_values=_pack_together([cross.self.key, cross.self.value], pack),
        cross_out=_pack(cross.output.dense, pack),
        cross_norm=norm_of(cross.output.LayerNorm, dtype),
        up=_pack(layer.intermediate.dense, pack),
        activation=layer.intermediate.intermediate_act_fn,
        down=_pack(layer.output.dense, pack),
        mlp_norm=norm_of(layer.output.LayerNorm, dtype),
        scale=own.self.attention_head_size**-0.5,
    )


def _pack(module: nn.Linear, pack: Pack) -> Linear:
    return pack(module.weight, module.bias)


def _pack_together(modules: list[nn.Linear], pack: Pack) -> Linear:
    with torch.no_grad():
        return pack(torch.cat([m.weight for m in modules]), torch.cat([m.bias for m in modules]))
