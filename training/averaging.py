"""An exponential moving average of trained weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def trained_tensors(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


class WeightAverage:
    """The average of a module's trained weights, which captions better than the last weights do.

    The decay rises with the number of updates, min(decay, (1 + n) / (10 + n)), so that the start is soon forgotten.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._module = module
        self._decay = decay
        self.tensors = {name: tensor.detach().clone() for name, tensor in trained_tensors(module).items()}

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Take in the module's weights after update number ``updates``, counted from 1."""
        weight = 1 - min(self._decay, (1 + updates) / (10 + updates))
        for name, tensor in trained_tensors(self._module).items():
            self.tensors[name].lerp_(tensor, weight)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from the average of an earlier run."""
        for name, tensor in tensors.items():
            self.tensors[name].copy_(tensor)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The module holds the average inside the ``with`` block, and its own weights again after it."""
        own = {name: tensor.detach().clone() for name, tensor in trained_tensors(self._module).items()}
        _copy_into(self._module, self.tensors)
        try:
            yield
        finally:
            _copy_into(self._module, own)


@torch.no_grad()
def _copy_into(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in trained_tensors(module).items():
        parameter.copy_(tensors[name])
