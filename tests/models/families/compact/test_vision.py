import pytest
import torch

from models.families.compact.vision import CHUNK_IMAGES, GridEncoder

NAME = "tf_efficientnet_lite0"


@torch.no_grad()
@pytest.mark.parametrize(("stem_blocks", "stem_shape"), [(7, (320, 2, 2)), (5, (112, 4, 4))])
def test_the_halves_make_the_whole_and_pictures_do_not_meet(stem_blocks: int, stem_shape: tuple[int, int, int]) -> None:
    encoder = GridEncoder(NAME, stem_blocks).eval()
    pictures = torch.randn(CHUNK_IMAGES + 2, 3, 64, 64)
    stem = encoder.forward_stem(pictures)
    assert stem.shape == (CHUNK_IMAGES + 2, *stem_shape)
    whole = encoder(pictures)
    torch.testing.assert_close(encoder.forward_top(stem), whole, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(encoder(pictures[-1:]), whole[-1:], atol=1e-5, rtol=1e-4)
