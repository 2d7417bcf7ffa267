"""Cross-attention in which the rows of an image share its memory, for the decoders of ``transformers``.

The K rows of an image become K times as many queries of one row: (B*K, T, D) -> (B, K*T, D). Queries of cross-attention
do not see each other, so the result is the same, and the memory's keys and values are computed and held once per image.
"""

from typing import Any

from torch import Tensor, nn


def share_memory(decoder: nn.Module) -> None:
    """Make every cross-attention of ``decoder`` (submodules named ``crossattention``) fold rows, by hooks.

    Hooks rather than wrappers keep state-dict keys, ``save_pretrained`` and ``deepcopy`` as they are.
    """
    for name, module in decoder.named_modules():
        if name.rpartition(".")[2] == "crossattention":
            module.register_forward_pre_hook(_fold, with_kwargs=True)
            module.register_forward_hook(_unfold)


def unfold_attentions(weights: Tensor, rows: int) -> Tensor:
    """Cross-attention weights (R, H, T, S) from folded ones (B, H, K*T, S)."""
    images, heads, _, positions = weights.shape
    per_row = weights.view(images, heads, rows // images, -1, positions)  # (B, H, K, T, S)
    return per_row.transpose(1, 2).reshape(rows, heads, -1, positions)


def _fold(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    hidden, *rest = args
    memory = kwargs["encoder_hidden_states"] if "encoder_hidden_states" in kwargs else rest[1]
    rows, length, width = hidden.shape
    images = memory.shape[0]
    module.rows_per_image = rows // images
    return (hidden.reshape(images, -1, width), *rest), kwargs


def _unfold(module: nn.Module, args: tuple[Any, ...], output: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    hidden, *rest = output
    images, _, width = hidden.shape
    return (hidden.reshape(images * int(module.rows_per_image), -1, width), *rest)  # type: ignore[arg-type]
