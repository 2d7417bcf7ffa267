"""The moving average of weights."""

import pytest
import torch
from torch import nn

from training.averaging import WeightAverage, trained_tensors


@pytest.fixture
def module() -> nn.Linear:
    linear = nn.Linear(2, 1)
    linear.bias.requires_grad_(False)
    return linear


def set_weight(module: nn.Linear, value: float) -> None:
    with torch.no_grad():
        module.weight.fill_(value)


def test_only_trained_parameters_take_part(module: nn.Linear) -> None:
    assert list(trained_tensors(module)) == ["weight"]
    assert list(WeightAverage(module, 0.9).tensors) == ["weight"]


def test_average_worked_out_by_hand(module: nn.Linear) -> None:
    set_weight(module, 1.0)
    average = WeightAverage(module, decay=0.2)
    set_weight(module, 0.0)
    average.update(1)  # decay (1 + 1) / (10 + 1) = 2/11, which is below 0.2
    torch.testing.assert_close(average.tensors["weight"], torch.full((1, 2), 2 / 11))
    set_weight(module, 1.0)
    average.update(100)  # decay 0.2, below 101/110
    torch.testing.assert_close(average.tensors["weight"], torch.full((1, 2), 0.2 * 2 / 11 + 0.8))


def test_the_module_holds_the_average_within_the_block_only(module: nn.Linear) -> None:
    set_weight(module, 1.0)
    average = WeightAverage(module, 0.5)
    set_weight(module, 3.0)
    with pytest.raises(KeyError), average.applied():
        assert module.weight.tolist() == [[1.0, 1.0]]
        raise KeyError
    assert module.weight.tolist() == [[3.0, 3.0]]
    assert average.tensors["weight"].tolist() == [[1.0, 1.0]]


def test_a_restored_average_goes_on_as_if_never_stopped(module: nn.Linear) -> None:
    set_weight(module, 1.0)
    average = WeightAverage(module, 0.5)
    set_weight(module, 2.0)
    average.update(1)
    stored = {name: tensor.clone() for name, tensor in average.tensors.items()}
    other = WeightAverage(module, 0.5)
    other.restore(stored)
    for each in (average, other):
        each.update(2)
    assert torch.equal(average.tensors["weight"], other.tensors["weight"])
