"""From modules of transformers to what runs in their place."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from models.families.fused.bert import read_bert
from models.families.fused.blip_vision import FusedVision, read_blip_vision
from models.families.fused.decoder import FusedDecoder
from models.families.fused.gpt2 import read_gpt2
from models.families.fused.graphs import CudaGraphs, StaticSteps
from models.families.fused.linears import Pack, Precision, packing
from models.families.fused.parts import Parts

READERS: dict[str, Callable[[Any, Pack, torch.dtype], Parts]] = {
    "bert": read_bert,
    "blip_text_model": read_bert,
    "gpt2": read_gpt2,
}
"""By the type of the decoder's config."""


def fuse_decoder(decoder: Any, precision: Precision = "stored") -> FusedDecoder:
    """The fused decoder of a language model with cross-attention."""
    weight, dtype = _dtypes(decoder)
    parts = READERS[decoder.config.model_type](decoder, packing(precision, weight.device), dtype)
    fused = FusedDecoder(parts, dtype, memory_dtype=weight.dtype)
    if weight.device.type != "cuda":
        return fused
    graphs = CudaGraphs(weight.device)
    return replace(fused, static_steps=StaticSteps(fused.step_at, graphs, free_bytes=graphs.free_bytes))


def fuse_vision(model: Any) -> FusedVision:
    """The fused encoder of a ``BlipVisionModel``."""
    weight, dtype = _dtypes(model)
    return read_blip_vision(model, packing("stored", weight.device), dtype)


DECODER_MAKERS: dict[Precision, Callable[[Any], FusedDecoder]] = {
    "stored": fuse_decoder,
    "int8": partial(fuse_decoder, precision="int8"),
}


def _dtypes(module: Any) -> tuple[Tensor, torch.dtype]:
    """A weight, and the dtype of what lies between products: on a CPU only these gain from bf16, all else is as fast
    in fp32."""
    weight: Tensor = next(module.parameters())
    return weight, torch.float32 if weight.device.type == "cpu" else weight.dtype
