"""Convolutional networks without their batch norms: the same output in eval mode, in less time."""

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


def fold_batch_norms(module: nn.Module) -> None:
    """Replaces every (convolution, batch norm) pair by one convolution with the same output in eval mode.

    Pairs are told by their places: right only for networks that apply neighbours one after the other, as timm's
    EfficientNets do.
    """
    for parent in list(module.modules()):
        names = list(parent._modules)
        for conv_name, norm_name in zip(names, names[1:], strict=False):
            conv, norm = parent._modules[conv_name], parent._modules[norm_name]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                parent._modules[conv_name] = fuse_conv_bn_eval(conv, norm)
                # timm's norm layers carry the activation with them.
                parent._modules[norm_name] = getattr(norm, "act", nn.Identity())
