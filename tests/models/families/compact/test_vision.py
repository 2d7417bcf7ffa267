import pytest
import timm
import torch

from models.families.compact.vision import CHUNK_IMAGES, GridEncoder

NAME = "tf_efficientnet_lite0"
PICTURES = torch.linspace(-1, 1, 2 * 3 * 64 * 64).view(2, 3, 64, 64).sin()


@torch.no_grad()
def test_grid_is_the_feature_map_of_timm() -> None:
    torch.manual_seed(1)
    network = timm.create_model(NAME, pretrained=False, num_classes=0).eval()
    torch.manual_seed(1)
    grid = GridEncoder(NAME).eval()(PICTURES)
    assert grid.shape == (2, 4, 1280)
    torch.testing.assert_close(
        grid, network.forward_features(PICTURES).flatten(2).transpose(1, 2), atol=1e-5, rtol=1e-4
    )


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
