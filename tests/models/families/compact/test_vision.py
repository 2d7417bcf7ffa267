import pytest
import timm
import torch
from torch import nn

from models.families.compact.vision import CHUNK_IMAGES, GridEncoder, fold_batch_norms

NAME = "tf_efficientnet_lite0"
PICTURES = torch.linspace(-1, 1, 2 * 3 * 64 * 64).view(2, 3, 64, 64).sin()


def _network() -> nn.Module:
    """The timm network with batch norms that change something, as in trained weights."""
    network = timm.create_model(NAME, pretrained=False, num_classes=0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
    return network.eval()


@torch.no_grad()
def test_folding_keeps_the_output_and_leaves_no_batch_norm() -> None:
    network = _network()
    before = network.forward_features(PICTURES)
    fold_batch_norms(network)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert before.abs().mean() > 0.01
    torch.testing.assert_close(network.forward_features(PICTURES), before, atol=1e-4, rtol=1e-3)


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
