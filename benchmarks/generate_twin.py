"""The decoder of a compact captioner as a model of ``transformers``, for its ``generate``: same weights, its caches."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithCrossAttentions

from models.families.compact import CompactCaptioner
from models.families.compact.transformer import Attention, DecoderLayer


class TwinConfig(PreTrainedConfig):
    model_type = "limner_compact_decoder"


class GenerateTwin(PreTrainedModel, GenerationMixin):
    """As the decoders of ``transformers`` do it: a copy of the memory, and of its keys and values, for every beam, kept
    in an ``EncoderDecoderCache`` from the first step on; SDPA; logits of the last position."""

    config_class = TwinConfig
    main_input_name = "input_ids"
    _supports_sdpa = True

    def __init__(self, captioner: CompactCaptioner) -> None:
        sizes = captioner.config
        ids = {"bos_token_id": sizes.start_id, "eos_token_id": sizes.end_id, "pad_token_id": sizes.pad_id}
        shape = {"hidden_size": sizes.width, "num_attention_heads": sizes.heads, "vocab_size": sizes.vocab_size}
        super().__init__(TwinConfig(num_hidden_layers=sizes.decoder_layers, is_decoder=True, **ids, **shape))
        self.own = captioner.model

    def forward(
        self,
        input_ids: Tensor,
        encoder_hidden_states: Tensor,
        cache: Any = None,
        attention_mask: Tensor | None = None,
        **_: Any,
    ) -> CausalLMOutputWithCrossAttentions:
        if not isinstance(cache, EncoderDecoderCache):
            cache = EncoderDecoderCache(DynamicCache() if cache is None else cache, DynamicCache())
        past = cache.get_seq_length()
        positions = torch.arange(past, past + input_ids.shape[1])
        x = self.own.embed(input_ids, positions)
        for number, layer in enumerate(self.own.decoder):
            x = _layer(layer, number, x, encoder_hidden_states, cache)
        return CausalLMOutputWithCrossAttentions(logits=self.own.logits(x[:, -1:]), cache=cache)


def _layer(layer: Any, number: int, x: Tensor, memory: Tensor, cache: EncoderDecoderCache) -> Tensor:
    assert isinstance(layer, DecoderLayer)
    normed = layer.self_norm(x)
    keys, values = cache.self_attention_cache.update(*layer.self_attention.keys_values(normed), number)
    x = x + _attend(layer.self_attention, normed, keys, values)
    if cache.is_updated.get(number):
        kept = cache.cross_attention_cache.layers[number]
        keys, values = kept.keys, kept.values
    else:
        keys, values = cache.cross_attention_cache.update(*layer.cross_attention.keys_values(memory), number)
        cache.is_updated[number] = True
    x = x + _attend(layer.cross_attention, layer.cross_norm(x), keys, values)
    out: Tensor = x + layer.feed_forward(layer.feed_forward_norm(x))
    return out


def _attend(attention: Attention, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    query = attention.split_heads(attention.query(x))
    found = nn.functional.scaled_dot_product_attention(query, keys, values)
    out: Tensor = attention.out(found.transpose(1, 2).flatten(2))
    return out
