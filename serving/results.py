"""What became of the images of a request, as its answer tells it: shared by the routes and the command line."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Protocol

from serving.messages import CaptionedImage, Failure
from serving.schemas import CaptionOut, ItemError, ResultOut


class _MayFail(Protocol):
    @property
    def error(self) -> Failure | None: ...


def result_of(image: CaptionedImage) -> ResultOut:
    """One result of ``/v1/captions`` without its index."""
    return ResultOut(
        captions=[CaptionOut(**asdict(caption)) for caption in image.captions],
        descriptiveness=image.point.descriptiveness,
        expected_words=image.point.expected_words,
        fallback=image.fallback,
        notes=list(image.notes),
        error=item_error(image.error),
    )


def below(floor: float | None, images: Sequence[CaptionedImage]) -> list[int]:
    """Which images have captions, but none with a CLIPScore of ``floor``; None: none of them."""
    if floor is None:
        return []
    best = [max((caption.clip_score or 0.0 for caption in image.captions), default=None) for image in images]
    return [number for number, score in enumerate(best) if score is not None and score < floor]


def item_error(failure: Failure | None) -> ItemError | None:
    """The error of one image in an answer."""
    return None if failure is None else ItemError(code=failure.code, detail=failure.detail)


def failures(results: Sequence[_MayFail]) -> list[Failure]:
    """The errors among the results, in order. As many as results: the request as a whole failed with the first."""
    return [result.error for result in results if result.error is not None]
