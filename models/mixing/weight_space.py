"""A base, directions, and the models that their sums are."""

from collections.abc import Mapping

import torch
from torch import Tensor

from models.errors import CheckpointError, DataError
from models.mixing.coefficients import check_coefficients

Tensors = Mapping[str, Tensor]


class WeightSpace:
    """Every model base + sum_i a_i (direction_i - base), each made when it is asked for.

    Tensors of a direction that equal the base's are held once, as the base's own.
    """

    def __init__(self, base: Tensors, directions: Mapping[str, Tensors]) -> None:
        """Takes tensors by name, as stored.

        Raises:
            CheckpointError: ``wrong_keys``; a direction has other tensors than the base, or other whole numbers.
        """
        self.base = dict(base)
        self.directions = {name: _shared_with(self.base, tensors, name) for name, tensors in directions.items()}

    def mix(self, coefficients: Mapping[str, float]) -> dict[str, Tensor]:
        """The tensors of one model, in the base's dtypes; directions that are not named have coefficient 0.

        Without coefficients other than 0, or with a single 1, they are the stored tensors themselves; so is every
        tensor that no direction changes. The others are computed in fp32 and then rounded.

        Raises:
            UnknownNameError, RequestError: as ``check_coefficients`` does.
            DataError: ``not_finite``; a sum is beyond the dtype.
        """
        used = check_coefficients(coefficients, self.directions)
        if not used:
            return dict(self.base)
        if list(used.values()) == [1]:
            return dict(self.directions[next(iter(used))])
        # Fresh memory costs more than the arithmetic: all sums are made in the same three buffers.
        buffers = torch.empty(3, max((tensor.numel() for tensor in self.base.values()), default=0))
        return {key: self._sum(key, used, buffers) for key in self.base}

    def _sum(self, key: str, used: Mapping[str, float], buffers: Tensor) -> Tensor:
        base = self.base[key]
        moved = [(value, end) for name, value in used.items() if (end := self.directions[name][key]) is not base]
        if not moved:
            return base
        start, total, step = (buffer[: base.numel()].view(base.shape) for buffer in buffers)
        total.copy_(start.copy_(base))
        for value, end in moved:
            # Difference, product and sum are rounded one by one: fused, their bits would depend on the machine.
            total.add_(step.copy_(end).sub_(start).mul_(value))
        if not all(extreme.to(base.dtype).isfinite() for extreme in total.aminmax()):
            sums = ", ".join(f"{name}={value:g}" for name, value in used.items())
            raise DataError("not_finite", f"the mix {sums} is beyond {base.dtype} in tensor {key}: use less of it")
        mixed: Tensor = total.to(base.dtype, copy=True)  # a buffer must not be handed out
        return mixed


def _shared_with(base: Tensors, tensors: Tensors, direction: str) -> dict[str, Tensor]:
    """The tensors in the base's order, those that are equal replaced by the base's."""
    if odd := sorted(base.keys() ^ tensors.keys()):
        side = "has no" if odd[0] in base else "has a"
        raise CheckpointError("wrong_keys", f"direction {direction!r} does not fit the base: it {side} tensor {odd[0]}")
    shared = {}
    for key, start in base.items():
        end = tensors[key]
        if end.shape != start.shape:
            raise CheckpointError(
                "wrong_keys",
                f"direction {direction!r} does not fit the base: {key} has shape {tuple(end.shape)}, "
                f"the base's {tuple(start.shape)}",
            )
        equal = torch.equal(end, start)
        if not equal and not (end.is_floating_point() and start.is_floating_point()):
            raise CheckpointError(
                "wrong_keys",
                f"direction {direction!r} does not fit the base: {key} holds whole numbers and differs",
            )
        shared[key] = start if equal else end
    return shared
