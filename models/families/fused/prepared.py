"""The fused decoder of a model whose weights may change: made when it is first needed, and again when they did."""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from models.families.fused.bert import read_bert
from models.families.fused.decoder import FusedDecoder
from models.families.fused.gpt2 import read_gpt2
from models.families.fused.linears import Precision, packing
from models.families.fused.parts import Reader

READERS: dict[str, Reader] = {"bert": read_bert, "blip_text_model": read_bert, "gpt2": read_gpt2}
"""By the type of the decoder's config."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A fused decoder and the weights that it was made of."""

    decoder: FusedDecoder
    precision: Precision
    _weights: tuple[tuple[Tensor, int], ...]
    """Aliases, which keep the memory from being used for other weights, and how often each had been changed."""

    @classmethod
    def of(cls, decoder: Any, precision: Precision) -> Self:
        """Of a language model with cross-attention, as it is now."""
        weights = tuple((parameter.detach(), _version(parameter)) for parameter in decoder.parameters())
        return cls(fuse(decoder, precision), precision, weights)

    def fits(self, decoder: nn.Module, precision: Precision) -> bool:
        """Whether ``decoder`` still has these weights."""
        parameters = list(decoder.parameters())
        return (
            precision == self.precision
            and len(parameters) == len(self._weights)
            and all(
                now.data_ptr() == then.data_ptr() and now.dtype == then.dtype and _version(now) == version
                for now, (then, version) in zip(parameters, self._weights, strict=True)
            )
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copy's weights lie elsewhere, so the copy finds that this does not fit


def fuse(decoder: Any, precision: Precision) -> FusedDecoder:
    """The fused decoder of a language model with cross-attention."""
    weight = next(decoder.parameters())
    # On a CPU only the products gain from bf16: all between them is as fast in fp32, and exact.
    dtype = torch.float32 if weight.device.type == "cpu" else weight.dtype
    parts = READERS[decoder.config.model_type](decoder, packing(precision, weight.device), dtype)
    return FusedDecoder(parts, dtype, memory_dtype=weight.dtype)


def _version(parameter: Tensor) -> int:
    return -1 if parameter.is_inference() else parameter._version  # inference tensors count no changes
