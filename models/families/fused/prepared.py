"""What is made of a module's weights, which may change: made when it is first needed, and again when they did."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from torch import Tensor, nn

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Prepared(Generic[T]):
    """What ``make`` gave, and the weights that it was made of."""

    made: T
    _make: Callable[[Any], T]
    _weights: tuple[tuple[Tensor, int], ...]
    """Aliases, which keep the memory from being used for other weights, and how often each had been changed."""

    @classmethod
    def of(cls, module: nn.Module, make: Callable[[Any], T]) -> Self:
        """What ``make`` gives for ``module`` as it is now."""
        weights = tuple((parameter.detach(), _version(parameter)) for parameter in module.parameters())
        return cls(make(module), make, weights)

    def fits(self, module: nn.Module, make: Callable[[Any], T]) -> bool:
        """Whether ``module`` still has these weights, and the same is to be made of them."""
        parameters = list(module.parameters())
        return (
            make is self._make
            and len(parameters) == len(self._weights)
            and all(
                now.data_ptr() == then.data_ptr() and now.dtype == then.dtype and _version(now) == version
                for now, (then, version) in zip(parameters, self._weights, strict=True)
            )
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copy's weights lie elsewhere, so the copy finds that this does not fit


def _version(parameter: Tensor) -> int:
    return -1 if parameter.is_inference() else parameter._version  # inference tensors count no changes
