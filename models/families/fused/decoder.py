"""Decoding over packed weights: one memory per image, self-attention alone per row, logits of the last token alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from models.families.fused.parts import Layer, Norm, Parts
from models.families.fused.rows import Rows, merge_rows
from models.interfaces import DecodeState
from models.rows import keep_rows, moving_rows


@dataclass(frozen=True, eq=False)
class FusedDecoder:
    """A decoder of ``transformers`` without its modules.

    ``DecodeState.memory`` is a list with keys and values (2, B, H, S, D/H) of each layer; ``DecodeState.cache`` is
    ``Rows``. A state goes on with the decoder that began it, whatever happens to the weights.
    """

    parts: Parts
    dtype: torch.dtype
    """Of the states between products, the keys and values of self-attention, and the logits."""
    memory_dtype: torch.dtype
    static_steps: Callable[[DecodeState, Tensor], Tensor | None] | None = None
    """Takes steps of one token in place of ``append``, where it can: ``models.families.fused.graphs``."""

    @torch.no_grad()
    def start(
        self, memory: Tensor, ids: Tensor, padding: list[int], *, graphs: bool = True
    ) -> tuple[DecodeState, Tensor]:
        """The state with one row per image of ``memory`` (B, S, D) after ``ids`` (B, T), and logits (B, V).

        ``padding`` (B,): how many of the leading ids of each row stand for nothing. ``graphs``: whether
        ``static_steps`` may go on with it.
        """
        keys_values = [self._project(layer, memory) for layer in self.parts.layers]
        shape = (len(self.parts.layers), self.parts.heads, keys_values[0].shape[-1])
        state = DecodeState(keys_values, Rows.empty(padding, shape, self.dtype, memory.device), {"decoder": self})
        state.extra["graphs"] = graphs
        return state, self.append(state, ids)

    @torch.no_grad()
    def append(self, state: DecodeState, ids: Tensor) -> Tensor:
        """Logits (R, V) after the last of ``ids`` (R, T), which are appended to the rows."""
        if self.static_steps is not None and state.extra["graphs"] and ids.shape[1] == 1:
            if (logits := self.static_steps(state, ids)) is not None:
                return logits
        return self._append([state], [ids])[0]

    @torch.no_grad()
    def append_together(self, states: Sequence[DecodeState], ids: Sequence[Tensor]) -> list[Tensor]:
        """``append`` of ``ids`` (R, T) to each of several states, equally many to all."""
        if self.static_steps is not None and any(state.extra["graphs"] for state in states):
            return [self.append(state, each) for state, each in zip(states, ids, strict=True)]
        return self._append(states, ids)

    def _append(self, states: Sequence[DecodeState], ids: Sequence[Tensor]) -> list[Tensor]:
        length = ids[0].shape[1]
        embedded, readers = [], []
        for state, each in zip(states, ids, strict=True):
            rows: Rows = state.cache
            rows.make_room(length)
            embedded.append(self.parts.embed(each, rows.positions(length, self.parts.max_positions)))
            keys_values = rows.keys_values[:, :, : rows.columns]
            readers.append(_Reader(rows.count, state.memory, keys_values, rows.mask(length)))
        return list(self._run(_cat(embedded), readers).split_with_sizes([reader.rows for reader in readers]))

    @torch.no_grad()
    def step_at(self, ids: Tensor, memory: list[Tensor], keys_values: Tensor, begins: Tensor, column: Tensor) -> Tensor:
        """Logits (R, V) after ``ids`` (R, 1) in ``column`` (1,) of ``keys_values`` (L, R, columns, 2, H, D/H).

        ``begins`` (R,): the first column of each row. No shape depends on a value, and nothing waits for one. Columns
        behind may hold anything finite; done again, it gives the same.
        """
        columns = torch.arange(keys_values.shape[2], device=ids.device)
        mask = (columns <= column) & (columns >= begins.unsqueeze(1)) | (columns == column)  # (R, columns)
        at = (column - begins).clamp(0, self.parts.max_positions - 1).unsqueeze(1)
        reader = _Reader(len(ids), memory, keys_values, mask[:, None, None], column)
        return self._run(self.parts.embed(ids, at), [reader])

    def _run(self, x: Tensor, readers: Sequence["_Reader"]) -> Tensor:
        """Logits (R, V) after the last of the states ``x`` (R, T, D), those of the readers one after the other."""
        for number, layer in enumerate(self.parts.layers):
            x = self._own(number, layer, x, readers)
            x = self._cross(number, layer, x, readers)
            x = self._mlp(layer, x)
        return self.parts.head(x[:, -1])

    def _own(self, number: int, layer: Layer, x: Tensor, readers: Sequence["_Reader"]) -> Tensor:
        """States (R, T, D) after self-attention."""
        count, length, _ = x.shape
        qkv = layer.qkv(self._before(layer.own_norm, x)).view(count, length, 3, self.parts.heads, -1)
        parts = zip(readers, qkv.split_with_sizes([reader.rows for reader in readers]), strict=True)
        mixed = _cat([reader.read_own(number, each, layer.scale) for reader, each in parts])
        return self._after(layer.own_norm, x, layer.own_out(mixed))

    def _cross(self, number: int, layer: Layer, x: Tensor, readers: Sequence["_Reader"]) -> Tensor:
        """States (R, T, D) after attention to the memories."""
        queries = layer.query(self._before(layer.cross_norm, x))
        parts = zip(readers, queries.split_with_sizes([reader.rows for reader in readers]), strict=True)
        mixed = _cat([reader.read_memory(number, each, layer.scale) for reader, each in parts])
        return self._after(layer.cross_norm, x, layer.cross_out(mixed))

    def _mlp(self, layer: Layer, x: Tensor) -> Tensor:
        inner = layer.activation(layer.up(self._before(layer.mlp_norm, x)))
        return self._after(layer.mlp_norm, x, layer.down(inner))

    def _before(self, norm: Norm, x: Tensor) -> Tensor:
        return norm(x) if self.parts.norm_first else x

    def _after(self, norm: Norm, x: Tensor, change: Tensor) -> Tensor:
        return x + change if self.parts.norm_first else norm(x + change)

    def _project(self, layer: Layer, memory: Tensor) -> Tensor:
        """Keys and values (2, B, H, S, D/H) of ``memory`` (B, S, D)."""
        images, positions, _ = memory.shape
        projected = layer.memory_keys_values(memory).view(images, positions, 2, self.parts.heads, -1)
        return projected.permute(2, 0, 3, 1, 4).to(self.memory_dtype).contiguous()


@dataclass(frozen=True, eq=False)
class _Reader:
    """What the rows of one state attend to, in all layers."""

    rows: int
    """R."""
    memory: list[Tensor]
    """(2, B, H, S, D/H) of each layer."""
    keys_values: Tensor
    """(L, R, columns, 2, H, D/H); those of the T new states come into ``column`` (1,), or into the T last columns."""
    mask: Tensor | None
    column: Tensor | None = None

    def read_own(self, layer: int, qkv: Tensor, scale: float) -> Tensor:
        """Self-attention (R, T, D) of ``qkv`` (R, T, 3, H, D/H)."""
        count, length = qkv.shape[:2]
        keys_values = self.keys_values[layer]
        if self.column is None:
            keys_values[:, -length:] = qkv[:, :, 1:]
        else:
            keys_values.index_copy_(1, self.column, qkv[:, :, 1:])
        keys, values = keys_values.transpose(1, 3).unbind(2)  # (R, H, columns, D/H)
        queries = qkv[:, :, 0].transpose(1, 2)
        mixed = scaled_dot_product_attention(queries, keys, values, attn_mask=self.mask, scale=scale)
        return mixed.transpose(1, 2).reshape(count, length, -1)

    def read_memory(self, layer: int, queries: Tensor, scale: float) -> Tensor:
        """Attention (R, T, D) of ``queries`` (R, T, D) to the memory: the K rows of an image are K queries."""
        count, length, _ = queries.shape
        memory = self.memory[layer]
        images, heads = memory.shape[1:3]
        folded = queries.view(images, count // images * length, heads, -1).transpose(1, 2)
        mixed = attend(folded.to(memory.dtype), memory[0], memory[1], scale).to(queries.dtype)
        return mixed.transpose(1, 2).reshape(count, length, -1)


def _cat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def attend(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attention without a mask, (B, H, T, D/H)."""
    if queries.dtype == torch.bfloat16 and queries.device.type == "cpu":
        # The fused kernel converts bf16 on this processor, the product multiplies it: half the time for few queries.
        shares = ((queries * scale) @ keys.transpose(-1, -2)).softmax(dim=-1)
        return shares @ values
    return scaled_dot_product_attention(queries, keys, values, scale=scale)


def append(state: DecodeState, ids: Tensor) -> Tensor:
    """``FusedDecoder.append`` of the decoder that began ``state``."""
    decoder: FusedDecoder = state.extra["decoder"]
    return decoder.append(state, ids)


def append_together(states: Sequence[DecodeState], ids: Sequence[Tensor]) -> list[Tensor]:
    """``FusedDecoder.append_together``, as far as the same decoder began the states."""
    decoders = {id(state.extra["decoder"]): state.extra["decoder"] for state in states}
    if len(decoders) > 1:  # the weights changed while some were under way
        return [append(state, each) for state, each in zip(states, ids, strict=True)]
    (decoder,) = decoders.values()
    logits: list[Tensor] = decoder.append_together(states, ids)
    return logits


def merge(states: Sequence[DecodeState]) -> DecodeState:
    """One state with the images of all ``states`` in order, which one decoder began and have equally many rows per
    image."""
    memory = [torch.cat(parts, dim=1) for parts in zip(*(state.memory for state in states), strict=True)]
    return DecodeState(memory, merge_rows([state.cache for state in states]), dict(states[0].extra))


def keep(state: DecodeState, images: Tensor) -> None:
    """Drop all images of ``state`` but ``images`` (B',), in that order."""
    movers = moving_rows(images)
    state.memory = [
        keep_rows(keys_values.transpose(0, 1), images, movers).transpose(0, 1) for keys_values in state.memory
    ]
    state.cache.keep(images)
