"""Pictures by an image processor of transformers, without the copies that it makes before it resizes."""

from typing import Any

from PIL.Image import Image, Resampling
from torch import Tensor
from transformers.image_processing_backends import PilBackend

_STEPS = ("preprocess", "process_image", "resize", "_preprocess")


def to_pixels(processor: Any, image: Image) -> Tensor:
    """Pixels (3, H, W), fp32, that the processor makes of an RGB picture.

    Where its first step is Pillow's resizing, that is done here: the processor would take the whole picture to numpy
    and back before it, which is four copies.
    """
    resizes = processor.do_resize
    if (plain := _plain_resizing(processor)) is not None:
        image, resizes = image.resize(*plain), False
    pixels: Tensor = processor(images=image, do_resize=resizes, return_tensors="pt")["pixel_values"][0]
    return pixels.float()


def _plain_resizing(processor: Any) -> tuple[tuple[int, int], Resampling] | None:
    """Width and height, and the filter, where the processor resizes by Pillow to one size; else None."""
    kind = type(processor)
    usual = issubclass(kind, PilBackend) and all(getattr(kind, step) is getattr(PilBackend, step) for step in _STEPS)
    if not usual or not processor.do_resize or not isinstance(processor.resample, int):
        return None
    given = {name: value for name, value in dict(processor.size).items() if value is not None}
    if set(given) != {"height", "width"}:
        return None
    return (given["width"], given["height"]), Resampling(processor.resample)
