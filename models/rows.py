"""Tensors whose first dimension counts images or the K rows of each: which rows there are, rows that leave and join."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad


def rows_of(images: Tensor, rows: int) -> Tensor:
    """The numbers (M*K,) of the ``rows`` K rows of each of ``images`` (M,)."""
    return (images.unsqueeze(1) * rows + torch.arange(rows, device=images.device)).flatten()


def pack(stays: Sequence[bool]) -> list[int]:
    """The places that stay, so ordered that few change theirs: gaps are filled from the end."""
    count = sum(stays)
    movers = (place for place in range(count, len(stays)) if stays[place])
    return [place if stays[place] else next(movers) for place in range(count)]


def moving_rows(kept: Tensor) -> Tensor:
    """The places (M,) of ``kept`` (N',) that get another row. A GPU is waited for here: ask once for many tensors."""
    return (kept != torch.arange(len(kept), device=kept.device)).nonzero().squeeze(1)


def keep_rows(tensor: Tensor, kept: Tensor, movers: Tensor | None = None) -> Tensor:
    """The rows ``kept`` (N',) of ``tensor`` (N, ...), which is overwritten: what keeps its place is not copied.

    ``movers``: ``moving_rows(kept)``, where it is known.
    """
    if movers is None:
        movers = moving_rows(kept)
    if len(movers):
        tensor[movers] = tensor[kept[movers]]
    return tensor[: len(kept)]


def cat_left_padded(parts: Sequence[Tensor], padding: float, dim: int = -1) -> Tensor:
    """The rows of all parts (N, ...) one after the other, shorter ones padded on the left of ``dim``, from the end."""
    longest = max(part.shape[dim] for part in parts)
    before = [0, 0] * (-dim - 1)
    return torch.cat([pad(part, (*before, longest - part.shape[dim], 0), value=padding) for part in parts])


def leading_padding(real: Tensor) -> int:
    """How many leading columns of ``real`` (N, L), True where something stands, are False in every row."""
    columns = real.any(dim=0)
    return int(columns.int().argmax()) if bool(columns.any()) else len(columns)
