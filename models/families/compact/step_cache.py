"""What a compact decoder has read: keys and values of all rows of an image in one pool."""

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from models.rows import keep_rows, leading_padding, moving_rows, rows_of

KeyValue = tuple[Tensor, Tensor]

_MOST_SHARING = 8
"""Rows of an image that share a pool; more would spend more on each other's places than a copy at every step costs."""
_SPARE_PLACES = 24


class StepCache:
    """Keys and values of self-attention for the R = B*K rows of B images, in P pools that Q = R/P rows share.

    At every step each row adds a place to its pool, (P, H, N, D/H), and reads those places that its text is made of:
    ``bias`` (P, Q, N) is 0 there and -inf elsewhere. Beams change places by a change of ``bias`` alone, so nothing is
    copied; images of any age line up in one tensor. Buffers have room for more places than are in use.
    """

    def __init__(self, memory: Sequence[KeyValue]) -> None:
        """For B images with one row each, of which ``memory`` has keys and values for each layer, (B, H, S, D/H)."""
        key = memory[0][0]
        self._images = len(key)
        self._pools = [(key[:, :, :0], value[:, :, :0]) for key, value in memory]
        self._bias = key.new_zeros(len(key), 1, 0)
        self._first = self._end = 0
        self.positions = torch.zeros(len(key), dtype=torch.long, device=key.device)
        """(B,) tokens that the rows of an image have read."""

    @property
    def pools(self) -> int:
        """P."""
        return self._bias.shape[0]

    @property
    def rows(self) -> int:
        """K rows of each image."""
        return self._bias.shape[0] * self._bias.shape[1] // self._images

    @property
    def bias(self) -> Tensor:
        """(P, Q, N), of the places in use."""
        return self._bias[:, :, self._first : self._end]

    def open_places(self) -> None:
        """A new place for every row, which no other row reads."""
        sharing = self._bias.shape[1]
        if self._end + sharing > self._bias.shape[2]:
            self._move(self._end - self._first + sharing + _SPARE_PLACES)
        self._end += sharing
        own = torch.full((sharing, sharing), -torch.inf, dtype=self._bias.dtype, device=self._bias.device)
        self._bias[:, :, self._end - sharing : self._end] = own.fill_diagonal_(0.0)

    def write(self, layer: int, key: Tensor, value: Tensor) -> KeyValue:
        """Fill the new places of a layer with (P, H, Q, D/H) each; returns all places, (P, H, N, D/H)."""
        keys, values = self._pools[layer]
        new = slice(self._end - key.shape[2], self._end)
        keys[:, :, new], values[:, :, new] = key, value
        used = slice(self._first, self._end)
        return keys[:, :, used], values[:, :, used]

    def reorder(self, rows: Tensor) -> None:
        """As ``Captioner.reorder``."""
        before, after = self.rows, len(rows) // self._images
        sharing = self._bias.shape[1]
        if max(before, after) > _MOST_SHARING:  # a pool for each row
            if sharing > 1:
                keys_of = rows // sharing
                self._pools = [(key[keys_of], value[keys_of]) for key, value in self._pools]
            else:
                self._pools = [(key[rows], value[rows]) for key, value in self._pools]
            self._bias = self._bias.flatten(0, 1)[rows].unsqueeze(1)
        else:
            self._bias = self._bias.flatten(0, 1)[rows].view(self._images, after, -1)

    def keep(self, images: Tensor) -> None:
        """As ``Captioner.keep``."""
        pools = rows_of(images, self._bias.shape[0] // self._images)
        movers = moving_rows(pools)
        self._pools = [(keep_rows(key, pools, movers), keep_rows(value, pools, movers)) for key, value in self._pools]
        self._bias = self._bias[pools]
        self.positions = self.positions[images]
        self._images = len(images)
        self._first += leading_padding((self.bias == 0).flatten(0, 1))

    @classmethod
    def merge(cls, caches: Sequence[Self]) -> Self:
        """As ``Captioner.merge``."""
        places = max(cache._end - cache._first for cache in caches)
        merged = copy.copy(caches[0])
        merged._images = sum(cache._images for cache in caches)
        padded = [[cache._padded(pool, places, _SPARE_PLACES) for pool in cache._pools] for cache in caches]
        merged._pools = [cat_pairs(layer) for layer in zip(*padded, strict=True)]
        merged._bias = torch.cat(
            [pad(cache.bias, (places - cache.bias.shape[2], _SPARE_PLACES), value=-torch.inf) for cache in caches]
        )
        merged._first, merged._end = 0, places
        merged.positions = torch.cat([cache.positions for cache in caches])
        return merged

    def _padded(self, pool: KeyValue, places: int, spare: int) -> KeyValue:
        """Places in use of one layer behind so many unused ones that there are ``places``, with ``spare`` behind."""
        used = self._end - self._first
        key, value = (pad(one[:, :, self._first : self._end], (0, 0, places - used, spare)) for one in pool)
        return key, value

    def _move(self, room: int) -> None:
        """To the front of buffers with so much room."""
        spare = room - (self._end - self._first)
        self._pools = [self._padded(pool, self._end - self._first, spare) for pool in self._pools]
        self._bias = pad(self.bias, (0, spare), value=-torch.inf)
        self._first, self._end = 0, self._end - self._first


def cat_pairs(pairs: Sequence[KeyValue]) -> KeyValue:
    """Keys and values, (N, ...), of all pairs one after the other."""
    return torch.cat([key for key, _ in pairs]), torch.cat([value for _, value in pairs])
