import timm
import torch
from torch import nn

from models.batch_norms import fold_batch_norms

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
