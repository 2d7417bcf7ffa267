"""Augmented views of a training picture."""

import numpy as np
from PIL import Image, ImageEnhance
from PIL.Image import Transpose
from pydantic import BaseModel, ConfigDict, Field

from training.seeds import seed_of


class ViewOptions(BaseModel):
    """How many views each training picture has, and what they look like.

    View 0 is the plain picture, view 1 its mirror image; the others are random crops with changed colours, every second
    one mirrored.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(default=8, ge=1)
    crop_scale: tuple[float, float] = (0.55, 1.0)
    """Share of the area that a crop keeps."""
    crop_ratio: tuple[float, float] = (0.8, 1.25)
    """Width over height of a crop, relative to the picture's own."""
    jitter: float = Field(default=0.25, ge=0, lt=1)
    """Largest relative change of brightness, contrast and saturation."""


def make_view(image: Image.Image, number: int, options: ViewOptions, seed: int, image_id: str) -> Image.Image:
    """View ``number`` of an RGB picture; the same for equal arguments."""
    if number >= 2:
        rng = np.random.default_rng(seed_of(seed, "view", image_id, number))
        image = _jitter(_crop(image, options, rng), options.jitter, rng)
    return image.transpose(Transpose.FLIP_LEFT_RIGHT) if number % 2 else image


def _crop(image: Image.Image, options: ViewOptions, rng: np.random.Generator) -> Image.Image:
    scale = rng.uniform(*options.crop_scale)
    stretch = np.sqrt(np.exp(rng.uniform(*np.log(options.crop_ratio))))
    width = min(image.width, max(1, round(image.width * np.sqrt(scale) * stretch)))
    height = min(image.height, max(1, round(image.height * np.sqrt(scale) / stretch)))
    left = int(rng.integers(image.width - width + 1))
    top = int(rng.integers(image.height - height + 1))
    return image.crop((left, top, left + width, top + height))


def _jitter(image: Image.Image, amount: float, rng: np.random.Generator) -> Image.Image:
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhance(image).enhance(1 + rng.uniform(-amount, amount))
    return image
