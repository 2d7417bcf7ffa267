"""The network is timm's."""

import pytest
import timm
import torch

from models.families.compact.vision import GridEncoder
from training.packages import take_weights

NAMES = [f"tf_efficientnet_lite{number}" for number in range(5)]


@torch.no_grad()
@pytest.mark.parametrize("side", [64, 75])
@pytest.mark.parametrize("name", NAMES)
def test_grid_is_the_feature_map_of_timm(name: str, side: int) -> None:
    torch.manual_seed(1)
    network = timm.create_model(name, pretrained=False, num_classes=0).eval().double()
    for norm in network.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 2)
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(std=0.1)
    pictures = torch.randn(2, 3, side, side, dtype=torch.float64)
    expected = network.forward_features(pictures).flatten(2).transpose(1, 2)
    encoder = GridEncoder(name, stem_blocks=5).eval().double()
    take_weights(encoder, network)
    torch.testing.assert_close(encoder(pictures), expected, atol=1e-9, rtol=1e-6)
