"""EfficientNet-Lite without its classifier, batch norms folded: timm's network without timm's import, two seconds.

Tan and Le 2019, "EfficientNet" (the "Lite" variants: no squeeze-and-excite, ReLU6, fixed stem and head). Submodules are
named as in timm, padding is TensorFlow's "same".
"""

import math

import torch.nn.functional as F
from torch import Tensor, nn

_SCALES = {0: (1.0, 1.0), 1: (1.0, 1.1), 2: (1.1, 1.2), 3: (1.2, 1.4), 4: (1.4, 1.8)}
"""Width and depth multipliers of Lite0 to Lite4."""
_STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192))
"""Layers, kernel, stride, expansion and channels of all stages but the last."""
_LAST_STAGE = (1, 3, 1, 6, 320)
_STEM_CHANNELS = 32
CHANNELS = 1280
"""Of the features."""


class SameConv2d(nn.Conv2d):
    """A convolution that pads as TensorFlow does: an odd one has its extra pixel on the right and below."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        even = stride == 1
        super().__init__(channels, out, kernel, stride, padding=kernel // 2 if even else 0, groups=groups)
        self._pads_itself = not even

    def forward(self, x: Tensor) -> Tensor:
        if self._pads_itself:
            rows, columns = (_padding(side, self.kernel_size[0], self.stride[0]) for side in x.shape[-2:])
            x = F.pad(x, (*columns, *rows))
        return super().forward(x)


class InvertedResidual(nn.Module):
    """Widen, filter each channel by itself, narrow; without the first where ``expansion`` is 1."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        self._widens = expansion != 1
        self._adds = stride == 1 and channels == out
        if self._widens:
            self.conv_pw = SameConv2d(channels, inner, 1)
        self.conv_dw = SameConv2d(inner, inner, kernel, stride, groups=inner)
        if self._widens:
            self.conv_pwl = SameConv2d(inner, out, 1)
        else:
            self.conv_pw = SameConv2d(inner, out, 1)  # as timm names it

    def forward(self, x: Tensor) -> Tensor:
        wide = F.relu6(self.conv_pw(x), inplace=True) if self._widens else x
        filtered = F.relu6(self.conv_dw(wide), inplace=True)
        out: Tensor = (self.conv_pwl if self._widens else self.conv_pw)(filtered)
        return out + x if self._adds else out


def stem_and_blocks(name: str) -> tuple[nn.Sequential, list[nn.Sequential], nn.Sequential]:
    """The first convolution, the seven stages and the last convolution of timm's ``tf_efficientnet_lite0`` to ``4``."""
    width, depth = _SCALES[int(name.removeprefix("tf_efficientnet_lite"))]
    channels, blocks = _STEM_CHANNELS, []
    for number, (layers, kernel, stride, expansion, base) in enumerate((*_STAGES, _LAST_STAGE)):
        out = _round(base * width)
        fixed = number in (0, len(_STAGES))
        stage = []
        for layer in range(layers if fixed else math.ceil(layers * depth)):
            stage.append(InvertedResidual(channels, out, kernel, stride if layer == 0 else 1, expansion))
            channels = out
        blocks.append(nn.Sequential(*stage))
    stem = nn.Sequential(SameConv2d(3, _STEM_CHANNELS, 3, 2), nn.ReLU6(inplace=True))
    head = nn.Sequential(SameConv2d(channels, CHANNELS, 1), nn.ReLU6(inplace=True))
    return stem, blocks, head


def _round(channels: float) -> int:
    """The next multiple of 8, or the one below where that takes away no more than a tenth."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def _padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    most = max(0, (math.ceil(side / stride) - 1) * stride + kernel - side)
    return most // 2, most - most // 2
