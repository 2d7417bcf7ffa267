"""The fused vision encoder against the module that it is read from."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import BlipVisionConfig, BlipVisionModel

from models.families.fused.blip_vision import attend
from models.families.fused.build import fuse_vision


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
def test_its_memory_is_the_modules(activation: str, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    config = BlipVisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=8,
        image_size=48,
        patch_size=16,
        hidden_act=activation,
    )
    model = BlipVisionModel(config).eval()
    for parameter in model.parameters():  # as large as trained ones
        parameter.data.add_(torch.randn_like(parameter) * 0.1)
    pixels = torch.randn(3, 3, 48, 48)
    with torch.inference_mode():
        exact = model(pixel_values=pixels).last_hidden_state
        found = fuse_vision(model.to(dtype))(pixels.to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("heads", [1, 3, 8])
def test_attention_in_parts_is_attention(heads: int) -> None:
    queries, keys, values = (torch.randn(2, heads, 5, 16) for _ in range(3))
    exact = scaled_dot_product_attention(queries, keys, values, scale=0.3).transpose(1, 2)
    torch.testing.assert_close(attend(queries, keys, values, 0.3), exact)
    parts = attend(queries.bfloat16(), keys.bfloat16(), values.bfloat16(), 0.3)
    assert parts.dtype == torch.bfloat16
    torch.testing.assert_close(parts.float(), exact, rtol=3e-2, atol=3e-2)
