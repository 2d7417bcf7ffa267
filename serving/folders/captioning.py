"""From opened pictures to rows of the output: the one way to caption them, on this machine or on a cluster."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from PIL.Image import Image

from models.decoding.strategy import Strategy
from models.errors import LimnerError
from models.images import LoadedImage
from models.pipeline import CaptionPipeline
from serving.folders.pictures import Opened, Picture
from serving.messages import CaptionedImage, Failure
from serving.output import json_line
from serving.points import Point
from serving.results import below, result_of

logger = logging.getLogger(__name__)

Row = dict[str, Any]
"""One result of ``/v1/captions`` with ``file_name`` in place of ``index``, and the model."""

Answer = TypeVar("Answer")

_MOST_IN_A_ROW = 16  # as in a batch of the usual size


class Rows(Protocol):
    """Makes the rows of opened pictures, one each, in order; a picture that fails is a row with an error."""

    def __call__(self, opened: Sequence[Opened]) -> list[Row]: ...

    @property
    def draft_px(self) -> int | None:
        """How small JPEGs may be opened for it (``draft_px`` of ``models.images.load_image``)."""


@dataclass(frozen=True)
class HowToWrite:
    """What is asked of every picture."""

    strategy: Strategy
    num_captions: int = 1
    score: bool = False
    rerank: bool = False
    min_clip_score: float | None = None


@dataclass(frozen=True)
class Place:
    """A pipeline, and where in its model's weight space it is."""

    pipeline: CaptionPipeline
    point: Point = Point()


class CaptionRows:
    """Rows with the captions of one model."""

    def __init__(self, place: Place, how: HowToWrite, fallback: Callable[[], Place] | None = None) -> None:
        """``fallback``: loads what captions pictures again whose best caption scores below ``min_clip_score``."""
        self._place = place
        self._how = how
        self._load_fallback = fallback
        self._fallback: Place | None = None
        self._patience = Patience()

    def __call__(self, opened: Sequence[Opened]) -> list[Row]:
        """Raises what the captioner raises where it cannot caption a single picture."""
        written = iter(self._patience.each_if_not_all(self._caption, images_of(opened)))
        model = self._place.pipeline.model_id
        return [row_of(each.picture, self._result(each, written), model) for each in opened]

    @property
    def draft_px(self) -> int | None:
        return self._place.pipeline.draft_px

    def _result(self, each: Opened, written: Iterator[CaptionedImage | Failure]) -> CaptionedImage:
        if isinstance(each.content, Failure):
            return CaptionedImage(error=each.content, point=self._place.point)
        result = next(written)
        if isinstance(result, Failure):
            return CaptionedImage(error=result, point=self._place.point)
        return replace(result, notes=each.content.notes)

    def _caption(self, images: Sequence[Image]) -> list[CaptionedImage]:
        results = self._at(self._place, images)
        if low := below(self._how.min_clip_score, results):
            if self._fallback is None:
                assert self._load_fallback is not None
                self._fallback = self._load_fallback()
            again = self._at(self._fallback, [images[number] for number in low])
            for number, result in zip(low, again, strict=True):
                results[number] = replace(result, fallback=True)
        return results

    def _at(self, place: Place, images: Sequence[Image]) -> list[CaptionedImage]:
        how = self._how
        score = how.score or how.min_clip_score is not None
        found = place.pipeline.caption(
            images, how.strategy, num_captions=how.num_captions, score=score, rerank=how.rerank
        )
        return [CaptionedImage(tuple(captions), point=place.point) for captions in found.captions]


class OncePerContent:
    """Rows of other ``Rows``, which see pictures of the same bytes once."""

    def __init__(self, rows: Rows, copied: Callable[[int], None] = lambda number: None) -> None:
        """``copied``: is told how many pictures got the captions of another."""
        self._rows = rows
        self._copied = copied
        self._known: dict[bytes, bytes] = {}  # as JSON, which takes a tenth of the memory

    def __call__(self, opened: Sequence[Opened]) -> list[Row]:
        new: dict[bytes | int, Opened] = {}
        for each in opened:
            if each.digest is None or isinstance(each.content, Failure):
                new[id(each)] = each
            elif each.digest not in self._known:
                new.setdefault(each.digest, each)
        rows = dict(zip(new, self._rows(list(new.values())), strict=True))
        self._known |= {key: json_line(row) for key, row in rows.items() if isinstance(key, bytes)}
        found = [{**self._row(each, rows), "file_name": each.picture.name} for each in opened]
        captioned = sum(row["error"] is None for row in found)
        self._copied(captioned - sum(row["error"] is None for row in rows.values()))
        return found

    @property
    def draft_px(self) -> int | None:
        return self._rows.draft_px

    def _row(self, each: Opened, rows: Mapping[bytes | int, Row]) -> Row:
        if each.digest is None or isinstance(each.content, Failure):
            return rows[id(each)]
        row: Row = json.loads(self._known[each.digest])
        return row


def images_of(opened: Iterable[Opened]) -> list[Image]:
    """The pictures among them, in order."""
    return [each.content.image for each in opened if isinstance(each.content, LoadedImage)]


class Patience:
    """How long a model may fail: on one picture or another, but not on all of a batch, nor on one batch of a single
    picture after the other."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def each_if_not_all(
        self, work: Callable[[Sequence[Image]], Sequence[Answer]], images: Sequence[Image]
    ) -> list[Answer | Failure]:
        """What ``work`` makes of all images together; if that fails, of each by itself, so that one fails alone.

        Raises:
            Exception: that of ``work``, when it fails for each of several images: the fault is not with them.
        """
        try:
            answers: list[Answer | Failure] = list(work(images))
        except LimnerError:
            raise
        except Exception as error:
            answers = [self._alone(work, image) for image in images]
            if all(isinstance(answer, Failure) for answer in answers):
                self._in_a_row += len(images)
                if len(images) > 1 or self._in_a_row >= _MOST_IN_A_ROW:
                    raise error
                return answers
        if images:
            self._in_a_row = 0
        return answers

    def _alone(self, work: Callable[[Sequence[Image]], Sequence[Answer]], image: Image) -> Answer | Failure:
        try:
            [answer] = work([image])
        except Exception as error:
            logger.warning("a picture of %d x %d failed: %r", *image.size, error)
            return _failure(error)
        return answer


def _failure(error: Exception) -> Failure:
    if isinstance(error, LimnerError):
        return Failure(error.code, error.detail)
    return Failure("internal_error", f"the model failed on this picture: {error!r}")


def row_of(picture: Picture, image: CaptionedImage, model: str) -> Row:
    """The row of one picture."""
    return {"file_name": picture.name, **result_of(image).model_dump(mode="json"), "model": model}
