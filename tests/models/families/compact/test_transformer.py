import torch

from models.families.compact.transformer import Attention, DecoderLayer, attend
from tests.models.families.compact.tiny import tiny_config


def test_attention_equals_the_one_of_torch() -> None:
    query, key, value = (torch.randn(2, 3, length, 4, dtype=torch.float64) for length in (5, 7, 7))
    mask = torch.rand(5, 7) < 0.6
    mask[:, 0] = True
    out, weights = attend(query, key, value, mask)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))
    assert bool((weights.masked_select(~mask) == 0).all())


def test_heads_split_the_width_in_order() -> None:
    x = torch.arange(12.0).view(1, 2, 6)
    heads = Attention(6, 2).split_heads(x)
    assert heads.shape == (1, 2, 2, 3)
    assert heads[0, 1, 0].tolist() == [3, 4, 5]


@torch.no_grad()
def test_rows_of_one_image_read_its_memory_as_if_each_had_a_copy() -> None:
    layer = DecoderLayer(tiny_config(), dropout=0.0).double().eval()
    memory = layer.cross_attention.keys_values(torch.randn(2, 5, 16, dtype=torch.float64))
    rows = torch.randn(6, 3, 16, dtype=torch.float64)  # R = 2 images x 3 rows
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    shared = layer(rows, memory, mask)
    copied = layer(rows, tuple(part.repeat_interleave(3, dim=0) for part in memory), mask)
    assert shared[2].shape == (6, 2, 3, 5)  # cross-attention weights (R, H, T, S)
    for one, other in zip((shared[0], *shared[1:]), (copied[0], *copied[1:]), strict=True):
        torch.testing.assert_close(one, other)
