"""What self-attention remembers of R rows, in one tensor that has room for more."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 16
"""Columns that are added at a time."""


@dataclass
class Rows:
    """Keys and values of the tokens so far, R = B*K rows that end in the same column.

    Rows of shorter texts begin later: the columns before are padding, which nothing attends to.
    """

    keys_values: Tensor  # (L, R, columns and room, 2, H, D/H)
    columns: int
    padding: list[int]
    """(B,) how many columns each image's rows begin late."""

    @classmethod
    def empty(cls, padding: list[int], shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> "Rows":
        """One row per image; ``shape``: layers, heads, features of a head."""
        layers, heads, features = shape
        keys_values = torch.empty(layers, len(padding), 0, 2, heads, features, dtype=dtype, device=device)
        return cls(keys_values, 0, padding)

    @property
    def count(self) -> int:
        return self.keys_values.shape[1]

    def make_room(self, length: int) -> None:
        """Let the next ``length`` columns exist, their content undefined."""
        if self.columns + length > self.keys_values.shape[2]:
            self.keys_values = _with_room([self], [0], self.columns + length)
        self.columns += length

    def begins(self) -> Tensor:
        """(R,) the first column of each row that is no padding."""
        begins = torch.tensor(self.padding, device=self.keys_values.device)
        return begins.repeat_interleave(self.count // len(self.padding))

    def positions(self, length: int, most: int) -> Tensor:
        """Positions (R or 1, T) of the last ``length`` columns, all below ``most``.

        Only rows that wait finished for others would go beyond; what they predict is not used.
        """
        columns = torch.arange(self.columns - length, self.columns, device=self.keys_values.device)
        begins = self.begins().unsqueeze(1) if any(self.padding) else 0
        return (columns - begins).clamp(0, most - 1).view(-1, length)

    def mask(self, length: int) -> Tensor | None:
        """What the last ``length`` columns attend to, (R or 1, 1, T, columns); None where that is everything.

        A padding column attends to itself, so that its softmax has a sum.
        """
        if length == 1 and not any(self.padding):
            return None
        columns = torch.arange(self.columns, device=self.keys_values.device)
        last = columns[-length:].unsqueeze(1)
        mask = (columns <= last).unsqueeze(0)
        if any(self.padding):
            mask = mask & (columns >= self.begins().view(-1, 1, 1)) | (columns == last)
        return mask.unsqueeze(1)

    def select(self, rows: Tensor) -> None:
        """Let row r be the old row ``rows[r]`` of the same image."""
        if rows.device.type == "cpu" and torch.equal(rows, torch.arange(self.count)):
            return
        self.keys_values = self.keys_values.index_select(1, rows)

    def keep(self, images: Tensor) -> None:
        """Drop the rows of all images but ``images`` (B',), and the columns that are padding in all that stay."""
        each = self.count // len(self.padding)
        rows = (images.unsqueeze(1) * each + torch.arange(each, device=images.device)).flatten()
        stay = [self.padding[image] for image in images.tolist()]
        skipped = min(stay)
        self.keys_values = self.keys_values[:, :, skipped:].index_select(1, rows)
        self.columns -= skipped
        self.padding = [padding - skipped for padding in stay]


def merge_rows(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, one part after the other; they end in the same column."""
    columns = max(part.columns for part in parts)
    begins = [columns - part.columns for part in parts]
    padding = [begin + before for part, begin in zip(parts, begins, strict=True) for before in part.padding]
    return Rows(_with_room(parts, begins, columns), columns, padding)


def _with_room(parts: Sequence[Rows], begins: Sequence[int], columns: int) -> Tensor:
    """Room for at least ``columns`` columns, in which the columns of each part begin at its number in ``begins``."""
    layers, _, _, *rest = parts[0].keys_values.shape
    rows, room = sum(part.count for part in parts), -(-columns // BLOCK) * BLOCK
    whole = parts[0].keys_values.new_zeros(layers, rows, room, *rest)  # padding is multiplied by 0: it must be finite
    row = 0
    for part, begin in zip(parts, begins, strict=True):
        whole[:, row : row + part.count, begin : begin + part.columns] = part.keys_values[:, :, : part.columns]
        row += part.count
    return whole
