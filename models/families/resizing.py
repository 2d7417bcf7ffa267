"""What an image processor of transformers would do to a picture first, so that it can be done without its copies."""

from typing import Any

from PIL.Image import Resampling
from transformers.image_processing_backends import PilBackend


def plain_resizing(processor: Any) -> tuple[tuple[int, int], Resampling] | None:
    """Width and height, and the filter, where its first step is Pillow's own resizing to one size; else None.

    The processor would copy the picture in full several times before that step, into numpy and back.
    """
    kind = type(processor)
    as_usual = issubclass(kind, PilBackend) and all(
        getattr(kind, step) is getattr(PilBackend, step)
        for step in ("preprocess", "process_image", "resize", "_preprocess")
    )
    if not as_usual or not processor.do_resize or not isinstance(processor.resample, int):
        return None
    given = {name: value for name, value in dict(processor.size).items() if value is not None}
    if set(given) != {"height", "width"}:
        return None
    return (given["width"], given["height"]), Resampling(processor.resample)
