"""Products of few rows with large matrices: their time is that of reading the matrix, so it is stored for that.

``Pack`` makes a function of a layer's weight (N, K) and bias (N,): from x (..., K) to (..., N) in x's dtype.
"""

import copy
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import linear
from transformers.activations import GELUActivation

Linear = Callable[[Tensor], Tensor]
Pack = Callable[[Tensor, Tensor | None], Linear]
Precision = Literal["stored", "int8"]
"""``stored``: the products are those of the weights' own dtype; ``int8``: of weights and inputs in 8 bits."""


def with_activation(product: Linear, activation: Callable[[Tensor], Tensor]) -> Linear:
    """``activation`` after ``product``, in one where that can be."""
    if isinstance(product, PackedLinear) and isinstance(activation, GELUActivation):
        return product.then_gelu()
    return lambda x: activation(product(x))


def packing(precision: Precision, device: torch.device) -> Pack:
    """The fastest way there is on ``device``."""
    if precision == "int8":
        return Int8Linear
    if device.type == "cpu" and _packs():
        return PackedLinear
    return PlainLinear


class PlainLinear:
    """The product as torch does it, on every device and in every dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x.to(self._weight.dtype), self._weight, self._bias).to(x.dtype)


class PackedLinear:
    """oneDNN's kernel on weights in the order in which it reads them, fp32 or bf16.

    On weights in torch's own order the kernels waste most of the memory's bandwidth for 2 to 16 rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._dtype = weight.dtype
        self._bias = None if bias is None else bias.detach()
        self._weight: Any = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
        self._then: tuple[str, list[float], str] = ("none", [], "")

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(self._dtype), self._weight, self._bias, *self._then)
        return product.to(x.dtype)

    def then_gelu(self) -> "PackedLinear":
        """The same product, and GELU (by the error function) of it while it is still in a register."""
        both = copy.copy(self)
        both._then = ("gelu", [], "none")
        return both


class Int8Linear:
    """Weights in 8 bits with a scale per output, inputs in 8 bits with a scale per row: rows never change each other.

    Error of a product of normally distributed numbers: about 0.5 % of its standard deviation.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        exact = weight.detach().float()
        scales = (exact.abs().amax(dim=1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        with warnings.catch_warnings():  # torch deprecates quantised tensors, and has no other entrance to this kernel
            warnings.filterwarnings("ignore", category=UserWarning)
            zeros = torch.zeros(len(scales), dtype=torch.long)
            quantised = torch.quantize_per_channel(exact, scales.double(), zeros, 0, torch.qint8)
            self._weight: Any = torch.ops.quantized.linear_prepack(quantised, None)
        self._bias = exact.new_zeros(len(exact)) if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        exact = x.float()
        peaks = exact.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        product: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            exact / peaks, 1 / 127, 128, self._weight
        )
        return torch.addcmul(self._bias, product, peaks).to(x.dtype)


def _packs() -> bool:
    """Whether torch was built with oneDNN and its packed product."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
