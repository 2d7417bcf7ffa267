import copy

import torch
from torch import nn

from models.families.fused.prepared import Prepared


def weight_of(module: nn.Linear) -> float:
    return float(module.weight.sum().detach())


def bias_of(module: nn.Linear) -> float:
    return float(module.bias.sum().detach())


@torch.no_grad()
def test_it_fits_until_the_weights_change() -> None:
    module = nn.Linear(3, 2)
    held = Prepared.of(module, weight_of)
    assert held.made == weight_of(module)
    assert held.fits(module, weight_of)
    assert not held.fits(module, bias_of)
    assert not held.fits(copy.deepcopy(module), weight_of)
    assert copy.deepcopy(held) is held
    module.weight.add_(1)
    assert not held.fits(module, weight_of)
    held = Prepared.of(module, weight_of)
    module.load_state_dict(nn.Linear(3, 2).state_dict())
    assert not held.fits(module, weight_of)
    held = Prepared.of(module, weight_of)
    module.weight = nn.Parameter(module.weight.clone())
    assert not held.fits(module, weight_of)
    held = Prepared.of(module, weight_of)
    module.to(torch.float64)
    assert not held.fits(module, weight_of)


def test_an_optimiser_changes_the_weights() -> None:
    module = nn.Linear(3, 2)
    for foreach in (False, True):  # fused=True changes weights without counting; a captioner forgets when it trains
        optimiser = torch.optim.AdamW(module.parameters(), foreach=foreach)
        held = Prepared.of(module, weight_of)
        module(torch.randn(4, 3)).sum().backward()
        optimiser.step()
        assert not held.fits(module, weight_of)


def test_weights_made_in_inference_mode() -> None:
    with torch.inference_mode():
        module = nn.Linear(3, 2)
        held = Prepared.of(module, weight_of)
        assert held.fits(module, weight_of)
        assert not held.fits(copy.deepcopy(module), weight_of)
