"""One product with two results gives what two products give."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from training.objectives.subset_projection import project_subset

WORDS = torch.tensor([[1, 3, 3], [0, 6, 2], [5, 5, 5], [6, 1, 0]])
WHOLE = torch.tensor([True, False, False, True])


def layer(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = ((4, 5), (7, 5), (7,))
    states, weight, bias = (torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes)
    return states, weight, bias


def by_two_products(states: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    return linear(states, weight, bias).gather(1, WORDS), linear(states[WHOLE], weight, bias)


@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients(with_bias: bool) -> None:
    states, weight, bias = layer()
    given = (states, weight, bias if with_bias else None)
    found = project_subset(states, WORDS, WHOLE, *given[1:])
    expected = by_two_products(*given)
    torch.testing.assert_close(found, expected)
    seeds = [torch.randn_like(part) for part in expected]
    inputs = [tensor for tensor in given if tensor is not None]
    torch.testing.assert_close(torch.autograd.grad(found, inputs, seeds), torch.autograd.grad(expected, inputs, seeds))


@pytest.mark.parametrize("whole", [torch.zeros(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool)])
def test_gradients_by_differences(whole: Tensor) -> None:
    states, weight, bias = layer()
    assert torch.autograd.gradcheck(
        lambda *given: project_subset(given[0], WORDS, whole, *given[1:]), (states, weight, bias)
    )


def test_under_autocast() -> None:
    states, weight, bias = layer(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        few, whole = project_subset(states, WORDS, WHOLE, weight, bias)
    assert (few.dtype, whole.dtype) == (torch.bfloat16, torch.bfloat16)
    (few.float().sum() + whole.float().sum()).backward()
    exact = layer(torch.float32)
    parts = by_two_products(*exact)
    (parts[0].sum() + parts[1].sum()).backward()
    for tensor, right in zip((states, weight, bias), exact, strict=True):
        assert tensor.grad is not None and right.grad is not None and tensor.grad.dtype == torch.float32
        torch.testing.assert_close(tensor.grad, right.grad, atol=0.1, rtol=0.05)
