"""Fine-tuned tensors as int8 or int4 differences to those they began from: half or a quarter of the bytes of fp16.

A tensor of D rows is stored as NAME and NAME::scale (fp32, one per row; one for vectors and scalars): tuned = base +
scale * steps, in fp32, rounded to the base's dtype. NAME holds the steps as int8 in the tensor's shape, or as int4, two
in a byte: uint8 (D, ceil(N/2)) for rows of N elements, each step of -7 to 7 plus 8, the first in the lower half, what
remains of an odd row's last byte 0. Vectors and scalars are int8 always. Scales are fp32 since those of small
differences are below fp16's normal range. A tensor that is not stored equals the base's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from models.errors import CheckpointError

SCALE = "::scale"
"""Ends the name of a tensor of scales; a module cannot have a tensor of such a name."""
Bits = Literal[4, 8]
LARGEST: dict[int, int] = {8: 127, 4: 7}
_CLIPPED = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Shares of a row's largest difference that its largest int4 step may stand for: the one that loses least is taken."""


def quantise_delta(base: Mapping[str, Tensor], tuned: Mapping[str, Tensor], bits: Bits = 8) -> dict[str, Tensor]:
    """The tensors to store; symmetric, a scale for each row.

    An element of what ``apply_delta`` restores is off by at most half a scale and half a unit in the last place. Of
    int4 this does not hold for the largest differences of a row, which are clipped where the row loses less so.

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
                "wrong_keys", f"{name}: no difference of {_kind(start)} and {_kind(end)} can be stored"
            )
        delta = end.float() - start.float()
        if bits == 4 and delta.ndim > 1:
            scale = _least_lossy_scale(delta)
            stored[name] = _pack(_steps(delta, scale, LARGEST[4]))
        else:
            scale = _largest_of_rows(delta) / LARGEST[8]
            stored[name] = _steps(delta, scale, LARGEST[8]).to(torch.int8)
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
            raise CheckpointError("wrong_keys", f"{source}: {name} is no difference to a tensor of the base")
    restored = dict(base)
    for name in names:
        start, steps, scale = base[name], stored[name], stored[name + SCALE]
        shape = start.shape[:1] + (1,) * (start.ndim - 1) if start.ndim > 1 else ()
        if not _is_of(steps, start) or scale.shape != shape:
            raise CheckpointError(
                "wrong_keys",
                f"{source}: {name} is {_kind(steps)} with scales {_kind(scale)}, the base has {_kind(start)}",
            )
        # Product and sum are rounded one after the other, so that every machine restores the same bits.
        whole = steps if steps.dtype == torch.int8 else _unpack(steps, start.shape)
        restored[name] = whole.float().mul_(scale).add_(start).to(start.dtype)
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


def _steps(delta: Tensor, scale: Tensor, largest: int) -> Tensor:
    steps = torch.where(scale > 0, delta / scale, 0)  # a row without differences has scale 0
    return steps.round().clamp(-largest, largest)


def _least_lossy_scale(delta: Tensor) -> Tensor:
    """Scales (D, 1, ...) of int4 for a difference (D, ...)."""
    rows = tuple(range(1, delta.ndim))
    full = _largest_of_rows(delta) / LARGEST[4]
    best, least = full, torch.full_like(full, torch.inf)
    for share in _CLIPPED:
        scale = full * share
        lost = (_steps(delta, scale, LARGEST[4]) * scale - delta).square().sum(rows, keepdim=True)
        best, least = torch.where(lost < least, scale, best), torch.minimum(lost, least)
    return best


def _pack(steps: Tensor) -> Tensor:
    """Bytes (D, ceil(N/2)) of whole steps (D, ...) from -7 to 7."""
    halves = (steps.flatten(1) + 8).to(torch.uint8)
    halves = torch.nn.functional.pad(halves, (0, halves.shape[1] % 2))
    return halves[:, ::2] | (halves[:, 1::2] << 4)


def _unpack(packed: Tensor, shape: torch.Size) -> Tensor:
    halves = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1)
    return halves[:, : shape[1:].numel()].view(shape).to(torch.int8) - 8


def _is_of(steps: Tensor, start: Tensor) -> bool:
    """Whether stored steps have the form for a tensor of the base."""
    if steps.dtype == torch.uint8 and start.ndim > 1:
        return steps.shape == (start.shape[0], (start.shape[1:].numel() + 1) // 2)
    return steps.dtype == torch.int8 and steps.shape == start.shape


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
