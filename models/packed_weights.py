"""Linear layers at inference on a CPU: weights in the layout that oneDNN multiplies fastest, made when first needed."""

import threading
import weakref
from collections import OrderedDict

import torch
from torch import Tensor, nn

_FOR_ROWS = 96
"""What the layout is made for; other numbers of rows are multiplied with it as well."""


class PackedWeights:
    """Packed copies of the weights that were used last, within ``most_bytes``.

    Only of weights that nobody trains: optimizers change theirs without a trace. What is changed otherwise is packed
    anew. Products differ from those of plain weights as far as fp32 sums in another order do.
    """

    def __init__(self, most_bytes: int) -> None:
        self.enabled = hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        """False: plain products."""
        self.held_bytes = 0
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._packs: OrderedDict[int, tuple[weakref.ref[Tensor], tuple[int, int], Tensor, int]] = OrderedDict()

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """``x`` (..., I) times ``weight`` (O, I), plus ``bias``; packed where that is possible."""
        fits = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
        if not (self.enabled and fits) or weight.requires_grad or x.requires_grad or weight.is_inference():
            return nn.functional.linear(x, weight, bias)
        with self._lock:
            packed = self._packed(weight)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return product

    def _packed(self, weight: Tensor) -> Tensor:
        state = (weight.data_ptr(), weight._version)
        found = self._packs.get(id(weight))
        if found is not None and found[0]() is weight and found[1] == state:
            self._packs.move_to_end(id(weight))
            return found[2]
        self._forget(id(weight))
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _FOR_ROWS)
        self._packs[id(weight)] = (weakref.ref(weight), state, packed, weight.nbytes)
        self.held_bytes += weight.nbytes
        while self.held_bytes > self._most_bytes and len(self._packs) > 1:
            self._forget(next(iter(self._packs)))
        return packed

    def _forget(self, key: int) -> None:
        if (gone := self._packs.pop(key, None)) is not None:
            self.held_bytes -= gone[3]


PACKED = PackedWeights(most_bytes=128 << 20)
"""Of this process."""
