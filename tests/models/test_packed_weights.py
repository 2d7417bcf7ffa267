import copy

import pytest
import torch
from torch import nn

from models.packed_weights import PackedWeights

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture
def packed() -> PackedWeights:
    made = PackedWeights(most_bytes=1 << 20)
    if not made.enabled:
        pytest.skip("this torch has no oneDNN")
    return made


@torch.no_grad()
@pytest.mark.parametrize("shape", [(1, 24), (3, 24), (2, 5, 24), (97, 24)])
@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_plain_weights(packed: PackedWeights, shape: tuple[int, ...], bias: bool) -> None:
    layer, x = nn.Linear(24, 37, bias=bias).requires_grad_(False), torch.randn(shape)
    torch.testing.assert_close(packed.linear(x, layer.weight, layer.bias), layer(x), **CLOSE)
    assert packed.held_bytes == layer.weight.nbytes
    packed.enabled = False
    assert torch.equal(packed.linear(x, layer.weight, layer.bias), layer(x))


def test_weights_that_change_are_packed_anew(packed: PackedWeights) -> None:
    layer, x = nn.Linear(8, 8).requires_grad_(False), torch.randn(4, 8)

    def check() -> None:
        torch.testing.assert_close(packed.linear(x, layer.weight, layer.bias), layer(x), **CLOSE)
        assert packed.held_bytes == layer.weight.nbytes

    check()
    layer.weight.lerp_(torch.zeros(8, 8), 0.5)
    check()
    layer.load_state_dict({name: tensor + 1 for name, tensor in layer.state_dict().items()})
    check()
    with torch.inference_mode():
        layer.weight.mul_(2)
    check()
    layer.weight.data = layer.weight.data.clone() + 1
    check()


def test_weights_in_training_are_not_packed(packed: PackedWeights) -> None:
    """Fused optimizers change them without raising the tensor's version."""
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    for options in ({"foreach": True}, {"fused": True}):
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.5, **options)
        layer(x).square().sum().backward()
        optimizer.step()
        with torch.no_grad():
            assert torch.equal(packed.linear(x, layer.weight, layer.bias), layer(x))
    assert packed.held_bytes == 0


@torch.no_grad()
def test_copies_and_new_tensors_have_their_own(packed: PackedWeights) -> None:
    x = torch.randn(4, 8)
    for _ in range(50):  # tensors that are gone leave their ids to others
        layer = nn.Linear(8, 8).requires_grad_(False)
        other = copy.deepcopy(layer)
        other.weight.add_(1)
        torch.testing.assert_close(packed.linear(x, layer.weight, layer.bias), layer(x), **CLOSE)
        torch.testing.assert_close(packed.linear(x, other.weight, other.bias), other(x), **CLOSE)


@torch.no_grad()
def test_what_is_kept_is_bounded(packed: PackedWeights) -> None:
    layers = [nn.Linear(256, 256).requires_grad_(False) for _ in range(6)]  # 256 KiB each, 4 fit
    for layer in layers:
        packed.linear(torch.randn(1, 256), layer.weight)
    assert packed.held_bytes == 4 * layers[0].weight.nbytes


def test_plain_where_packing_is_of_no_use(packed: PackedWeights) -> None:
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    out = packed.linear(x, layer.weight, layer.bias)
    assert out.requires_grad and torch.equal(out, layer(x))
    with torch.no_grad():
        double = layer.double().requires_grad_(False)
        assert torch.equal(packed.linear(x.double(), double.weight, double.bias), double(x.double()))
    with torch.inference_mode():
        made_here = torch.randn(8, 8)
        assert torch.equal(packed.linear(x, made_here), nn.functional.linear(x, made_here))
    assert packed.held_bytes == 0
