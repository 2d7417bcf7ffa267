"""Picture files through several arms: each picture is opened once, and scored with all its captions at once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from PIL.Image import Image

from models.clip_scorer import ClipScorer
from models.drafting import draft_px
from models.images import LoadedImage
from models.interfaces import Caption
from models.pipeline import CaptionPipeline
from serving.folders.captioning import Patience, Row, images_of
from serving.folders.opening import batches
from serving.folders.pictures import Opened, Picture
from serving.local_models import Choice
from serving.messages import CaptionedImage, Failure
from serving.results import item_error, result_of


@dataclass(frozen=True)
class LocalArm:
    """One of the ways to caption, loaded."""

    label: str
    choice: Choice
    pipeline: CaptionPipeline
    """Needs no scorer."""


@dataclass(frozen=True)
class ComparedPicture:
    """One file and what every arm made of it; a file that cannot be read fails alike in all."""

    file: Picture
    results: tuple[CaptionedImage, ...]
    image: Image | None
    """None where it cannot be read."""


class CompareRows:
    """Rows with what every arm made of each picture: ``arms`` as in an answer of ``/v1/compare``."""

    def __init__(self, arms: Sequence[LocalArm], scorer: ClipScorer) -> None:
        self._arms = arms
        self._scorer = scorer
        self._patience = Patience()

    def __call__(self, opened: Sequence[Opened]) -> list[Row]:
        """Raises as ``CaptionPipeline.caption`` does."""
        return [self._row(picture) for picture in compare_opened(self._arms, self._scorer, opened, self._patience)]

    @property
    def draft_px(self) -> int | None:
        """That of ``models.images.load_image``, for all arms and the scorer."""
        return draft_px(self._scorer.input_side_px, *(arm.pipeline.captioner.input_side_px for arm in self._arms))

    def _row(self, picture: ComparedPicture) -> Row:
        error = item_error(picture.results[0].error)
        arms = [
            {"label": arm.label, **result_of(result).model_dump(mode="json"), "model": arm.pipeline.model_id}
            for arm, result in zip(self._arms, picture.results, strict=True)
        ]
        return {"file_name": picture.file.name, "arms": arms, "error": error and error.model_dump(mode="json")}


def compare_files(
    arms: Sequence[LocalArm], scorer: ClipScorer, opened: Iterable[Opened | None], *, batch_size: int = 16
) -> Iterator[ComparedPicture]:
    """Each picture with one scored caption of each arm, in order. Raises as ``CaptionPipeline.caption`` does."""
    patience = Patience()
    for batch in batches(opened, batch_size):
        yield from compare_opened(arms, scorer, batch, patience)


def compare_opened(
    arms: Sequence[LocalArm], scorer: ClipScorer, opened: Sequence[Opened], patience: Patience
) -> Iterator[ComparedPicture]:
    """The same for one batch."""

    def each_arm(images: Sequence[Image]) -> list[tuple[Caption, ...]]:
        scored = _with_scores(scorer, images, [_write(arm, images) for arm in arms])
        return list(zip(*scored, strict=True))

    written = iter(patience.each_if_not_all(each_arm, images_of(opened)))
    for each in opened:
        content = each.content
        if isinstance(content, LoadedImage) and not isinstance(captions := next(written), Failure):
            results = tuple(
                CaptionedImage((caption,), content.notes, point=arm.choice.point)
                for arm, caption in zip(arms, captions, strict=True)
            )
            yield ComparedPicture(each.picture, results, content.image)
        else:
            failure = content if isinstance(content, Failure) else captions
            assert isinstance(failure, Failure)
            failed = tuple(CaptionedImage(error=failure, point=arm.choice.point) for arm in arms)
            yield ComparedPicture(each.picture, failed, None)


def _write(arm: LocalArm, images: Sequence[Image]) -> list[Caption]:
    """The best caption of each picture."""
    return [captions[0] for captions in arm.pipeline.caption(images, arm.choice.strategy).captions]


def _with_scores(
    scorer: ClipScorer, images: Sequence[Image], written: Sequence[Sequence[Caption]]
) -> list[list[Caption]]:
    """The captions of each arm with their scores. The scorer looks at a picture once, and equal captions get equal
    scores."""
    if not images:
        return [[] for _ in written]
    texts = [list(dict.fromkeys(caption.text for caption in captions)) for captions in zip(*written, strict=True)]
    scores = [dict(zip(*pair, strict=True)) for pair in zip(texts, scorer.score(images, texts), strict=True)]
    return [
        [
            replace(caption, clip_score=known[caption.text], scorer=scorer.scorer_id)
            for caption, known in zip(captions, scores, strict=True)
        ]
        for captions in written
    ]
