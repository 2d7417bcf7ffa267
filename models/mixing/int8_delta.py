"""Fine-tuned tensors as int8 differences to those they began from: half the bytes of fp16.

A tensor of D rows is stored as NAME (int8, its shape) and NAME::scale (fp32, one per row; one for vectors and scalars):
tuned = base + scale * int8, in fp32, rounded to the base's dtype. Scales are fp32 since those of small differences are
below fp16's normal range. A tensor that is not stored equals the base's.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from models.errors import CheckpointError

SCALE = "::scale"
"""Ends the name of a tensor of scales; a module cannot have a tensor of such a name."""
LARGEST = 127


def quantise_delta(base: Mapping[str, Tensor], tuned: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors to store; symmetric, each row scaled to its largest difference.

    An element of what ``apply_delta`` restores is off by at most half a scale and half a unit in the last place.

    Raises:
        CheckpointError: ``wrong_keys``; the two have other names or shapes, or differ in whole numbers.
    """
    if base.keys() != tuned.keys():
        odd = sorted(base.keys() ^ tuned.keys())
        raise CheckpointError("wrong_keys", f"no difference of models with other tensors: only one has {odd[0]}")
    stored: dict[str, Tensor] = {}
    for name, start in base.items():
        end = tuned[name]
        if start.shape == end.shape and torch.equal(start, end):
            continue
        if start.shape != end.shape or not (start.is_floating_point() and end.is_floating_point()):
            raise CheckpointError(
                "wrong_keys", f"{name}: no difference of {_kind(start)} and {_kind(end)} can be stored as int8"
            )
        delta = end.float() - start.float()
        scale = _largest_of_rows(delta) / LARGEST
        steps = torch.where(scale > 0, delta / scale, 0)  # a row without differences has scale 0
        stored[name] = steps.round().clamp(-LARGEST, LARGEST).to(torch.int8)
        stored[name + SCALE] = scale
    return stored


def apply_delta(base: Mapping[str, Tensor], stored: Mapping[str, Tensor], source: Path | str) -> dict[str, Tensor]:
    """The tuned tensors in the base's dtypes; those that are not stored are the base's own.

    Raises:
        CheckpointError: ``wrong_keys``; what ``source`` stores are no differences to this base.
    """
    names = {name for name in stored if not name.endswith(SCALE)}
    for name in sorted(stored):
        plain = name.removesuffix(SCALE)
        if plain not in base or plain not in names or plain + SCALE not in stored:
            raise CheckpointError("wrong_keys", f"{source}: {name} is no int8 difference to a tensor of the base")
    restored = dict(base)
    for name in names:
        start, steps, scale = base[name], stored[name], stored[name + SCALE]
        shape = start.shape[:1] + (1,) * (start.ndim - 1) if start.ndim > 1 else ()
        if steps.dtype != torch.int8 or steps.shape != start.shape or scale.shape != shape:
            raise CheckpointError(
                "wrong_keys",
                f"{source}: {name} is {_kind(steps)} with scales {_kind(scale)}, the base has {_kind(start)}",
            )
        # Product and sum are rounded one after the other, so that every machine restores the same bits.
        restored[name] = steps.float().mul_(scale).add_(start).to(start.dtype)
    return restored


def relative_error(base: Mapping[str, Tensor], tuned: Mapping[str, Tensor], restored: Mapping[str, Tensor]) -> float:
    """How much of the difference to the base is lost: |restored - tuned| / |tuned - base|, norms over all tensors."""
    lost = changed = 0.0
    for name, end in tuned.items():
        lost += float((restored[name].double() - end.double()).square().sum())
        changed += float((end.double() - base[name].double()).square().sum())
    return (lost / changed) ** 0.5 if changed else 0.0


def _largest_of_rows(tensor: Tensor) -> Tensor:
    """Magnitudes (D, 1, ...) of a tensor (D, ...), and a scalar () of a vector or scalar."""
    if tensor.ndim < 2:
        return tensor.abs().amax() if tensor.numel() else tensor.new_zeros(())
    return tensor.abs().amax(dim=tuple(range(1, tensor.ndim)), keepdim=True)


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
