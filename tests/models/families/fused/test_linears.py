import pytest
import torch
from torch.nn.functional import linear
from transformers.activations import ACT2FN

from models.device import cpu_has_int8
from models.families.fused.linears import Int8Linear, Pack, PackedLinear, PlainLinear, packing, with_activation

CPU = torch.device("cpu")
SIZES = [(96, 64), (31, 32), (5, 3)]


@pytest.mark.parametrize("pack", [PlainLinear, PackedLinear])
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
@pytest.mark.parametrize("rows", [1, 2, 3, 12, 40])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_products_are_the_modules(
    pack: Pack, outputs: int, inputs: int, rows: int, dtype: torch.dtype, tolerance: float
) -> None:
    weight, bias, x = torch.randn(outputs, inputs), torch.randn(outputs), torch.randn(rows, 2, inputs)
    for one in (bias, None):
        product = pack(weight.to(dtype), None if one is None else one.to(dtype))(x)
        assert (product.shape, product.dtype) == ((rows, 2, outputs), torch.float32)
        scale = inputs**0.5
        torch.testing.assert_close(product / scale, linear(x, weight, one) / scale, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("pack", [PlainLinear, PackedLinear])
@pytest.mark.parametrize("name", ["gelu", "gelu_new", "relu"])
def test_an_activation_in_the_product_is_the_activation_after_it(pack: Pack, name: str) -> None:
    weight, bias, x = torch.randn(32, 64) / 8, torch.randn(32), torch.randn(5, 64)
    product, activation = pack(weight, bias), ACT2FN[name]
    torch.testing.assert_close(with_activation(product, activation)(x), activation(product(x)), rtol=1e-5, atol=1e-5)
    assert isinstance(with_activation(product, activation), PackedLinear) == (pack is PackedLinear and name == "gelu")


@pytest.mark.skipif(not cpu_has_int8(), reason="needs a processor with AVX-512 VNNI")
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
def test_eight_bits(outputs: int, inputs: int) -> None:
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs)
    x = torch.randn(4, inputs) * torch.tensor([[1e-3], [1.0], [1e3], [0.0]])
    product = Int8Linear(weight, bias)(x)
    scale = x.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) * inputs**0.5
    assert float(((product - linear(x, weight, bias)) / scale).abs().max()) < 0.05
    assert torch.equal(product[3], bias)
    alone = torch.cat([Int8Linear(weight, bias)(row[None]) for row in x])
    assert torch.equal(alone, product)  # a row's scale is its own


def test_the_fastest_is_chosen() -> None:
    assert packing("stored", CPU) is PackedLinear
    assert packing("int8", CPU) is Int8Linear
    assert packing("stored", torch.device("cuda")) is PlainLinear
