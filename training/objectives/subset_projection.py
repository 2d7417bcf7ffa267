"""Logits of few words for many states and of all words for few states, with one gradient of the output layer."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def project_subset(
    states: Tensor, words: Tensor, whole: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Logits (N, M) of the ``words`` (N, M) for the states (N, D), and of all words (F, V) for the F states that
    ``whole`` (N,) marks, under the output layer ``weight`` (V, D) and ``bias`` (V,).

    The same by two products would make two gradients of the size of the layer and add them: most of the time and of the
    memory of a step. Second derivatives are not defined.
    """
    if torch.is_autocast_enabled(states.device.type):  # it does not reach into what has gradients of its own
        dtype = torch.get_autocast_dtype(states.device.type)
        states, weight, bias = states.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    # Captions share most of their words: a product with each word once, not with a vector for each of the N x M.
    distinct, places = torch.unique(words, return_inverse=True)
    few, all_words = _Projection.apply(states, distinct, whole.nonzero().squeeze(1), weight, bias)
    return few.gather(1, places), all_words


class _Projection(torch.autograd.Function):
    """(N, U) logits of the U distinct words for all states, (F, V) of all words for some."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, distinct: Tensor, rows: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(states, distinct, rows, weight)
        ctx.has_bias = bias is not None
        linear = torch.nn.functional.linear
        few = linear(states, weight[distinct], None if bias is None else bias[distinct])
        return few, linear(states[rows], weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_few: Tensor, of_all: Tensor) -> tuple[Tensor | None, ...]:
        states, distinct, rows, weight = ctx.saved_tensors
        to_states = (of_few @ weight[distinct]).index_add_(0, rows, of_all @ weight)
        to_weight = (of_all.T @ states[rows]).index_add_(0, distinct, of_few.T @ states)
        to_bias = of_all.sum(0).index_add_(0, distinct, of_few.sum(0)) if ctx.has_bias else None
        return to_states, None, None, to_weight, to_bias
