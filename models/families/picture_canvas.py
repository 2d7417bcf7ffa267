"""Pictures of different sizes as tensors of one size: each in the corner of a square canvas, to be cut out again."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

LONGEST_SIDE_PX = 1024
"""Side of the canvas. It also bounds what one picture may cost: some models take a token for every 28 x 28 pixels."""
SHORTEST_SIDE_PX = 32
"""Thinner pictures are refused by some processors; stretched ones are captioned."""
_NOTHING = -1.0


def to_canvas(image: Image.Image) -> Tensor:
    """The picture on a canvas (3, S, S), fp32: levels 0 to 255, and -1 where it does not reach.

    Pictures of up to S pixels a side, and not thinner than ``SHORTEST_SIDE_PX``, are not resized.
    """
    size = _fitted(image.size)
    fitted = image if image.size == size else image.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
    canvas = torch.full((3, LONGEST_SIDE_PX, LONGEST_SIDE_PX), _NOTHING)
    canvas[:, : size[1], : size[0]] = torch.from_numpy(np.array(fitted.convert("RGB"))).permute(2, 0, 1)
    return canvas


def from_canvas(canvas: Tensor) -> Image.Image:
    """The RGB picture on a canvas (3, S, S)."""
    painted = canvas[0] != _NOTHING
    height, width = int(painted[:, 0].sum()), int(painted[0].sum())
    return Image.fromarray(canvas[:, :height, :width].permute(1, 2, 0).to(torch.uint8).cpu().numpy())


def _fitted(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height within the limits, in proportion unless the picture is too thin for that."""
    scale = min(1.0, LONGEST_SIDE_PX / max(size))
    scale = max(scale, SHORTEST_SIDE_PX / min(size))
    width, height = (min(max(round(side * scale), SHORTEST_SIDE_PX), LONGEST_SIDE_PX) for side in size)
    return width, height
