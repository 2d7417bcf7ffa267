"""Pictures that are resized before a processor of transformers sees them, bit for bit as if it had done it."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BlipImageProcessorPil, CLIPImageProcessorPil, ViTImageProcessorPil

from models.families import resizing
from models.families.resizing import to_pixels


def _noise(size: tuple[int, int]) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("processor", "is_plain"),
    [
        (BlipImageProcessorPil(size={"height": 48, "width": 40}), True),
        (BlipImageProcessorPil(size={"height": 48, "width": 40}, do_normalize=False), True),
        (ViTImageProcessorPil(size={"height": 32, "width": 32}, resample=Image.Resampling.LANCZOS), True),
        (ViTImageProcessorPil(size={"height": 40, "width": 40}, do_center_crop=True, crop_size=32), True),
        (ViTImageProcessorPil(do_resize=False), False),
        (CLIPImageProcessorPil(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}), False),
    ],
    ids=["blip", "no normalising", "vit, lanczos", "crop", "no resizing", "shortest edge"],
)
@pytest.mark.parametrize("size", [(150, 100), (40, 48), (20, 30), (1, 7)])
def test_pixels_are_those_of_the_processor(processor: Any, is_plain: bool, size: tuple[int, int]) -> None:
    image = _noise(size)
    expected = processor(images=image, return_tensors="pt")["pixel_values"][0].float()
    assert torch.equal(to_pixels(processor, image), expected)
    assert (resizing._plain_resizing(processor) is not None) == is_plain


def test_a_processor_with_steps_of_its_own_is_left_alone() -> None:
    class Halves(BlipImageProcessorPil):
        def resize(self, image: Any, *arguments: Any, **options: Any) -> Any:
            return super().resize(image[:, : image.shape[1] // 2], *arguments, **options)

    processor = Halves(size={"height": 8, "width": 8})
    image = _noise((20, 20))
    expected = processor(images=image, return_tensors="pt")["pixel_values"][0]
    assert torch.equal(to_pixels(processor, image), expected)
    assert resizing._plain_resizing(processor) is None
