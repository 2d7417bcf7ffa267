"""An EfficientNet-Lite as grid encoder, in two halves so that training can cache the frozen one."""

import torch
from torch import Tensor, nn

from models.families.compact.efficientnet_lite import CHANNELS, stem_and_blocks

BLOCKS = 7
"""Of every EfficientNet-Lite; the output of them all is the smallest of the network to cache."""

CHUNK_IMAGES = 4
"""Pictures per pass at inference: larger chunks fall out of the CPU's cache and take longer per picture."""


class GridEncoder(nn.Module):
    """Grid features (B, S, C) of pictures (B, 3, H, W) in [-1, 1]; S = 49 and C = 1280 for Lite0 at 224 px."""

    def __init__(self, name: str, stem_blocks: int = BLOCKS) -> None:
        """``stem_blocks`` of the seven belong to the half that training keeps frozen and caches."""
        super().__init__()
        self.stem_blocks = stem_blocks
        self.channels = CHANNELS
        first, blocks, last = stem_and_blocks(name)
        self.stem = nn.Sequential(*first, *blocks[:stem_blocks])
        self.top = nn.Sequential(*blocks[stem_blocks:], *last)

    def forward_stem(self, pixels: Tensor) -> Tensor:
        """Features of the half that stays frozen in training: (B, 320, H/32, W/32) after all of Lite0's blocks."""
        return torch.cat([self.stem(chunk) for chunk in _chunks(pixels)])

    def forward_top(self, features: Tensor) -> Tensor:
        """Grid features (B, S, C) from the output of ``forward_stem``."""
        grid: Tensor = self.top(features.contiguous(memory_format=torch.channels_last))
        return grid.flatten(2).transpose(1, 2)  # (B, C, H, W) -> (B, S, C)

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.cat([self.forward_top(self.stem(chunk)) for chunk in _chunks(pixels)])


def _chunks(pixels: Tensor) -> tuple[Tensor, ...]:
    pictures = pixels.contiguous(memory_format=torch.channels_last)
    return torch.split(pictures, CHUNK_IMAGES) if pictures.device.type == "cpu" else (pictures,)
