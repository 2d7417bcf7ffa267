"""Picture files through several arms: each picture is opened once, and scored with all its captions at once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from PIL.Image import Image

from models.clip_scorer import ClipScorer
from models.images import LoadedImage
from models.interfaces import Caption
from models.pipeline import CaptionPipeline
from serving.files import PictureFile, open_batches, results_of
from serving.local_models import Choice
from serving.messages import CaptionedImage


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

    file: PictureFile
    results: tuple[CaptionedImage, ...]
    image: Image | None
    """None where it cannot be read."""


def compare_files(
    arms: Sequence[LocalArm], scorer: ClipScorer, files: Iterable[PictureFile], *, batch_size: int = 16
) -> Iterator[ComparedPicture]:
    """Each file with one scored caption of each arm, in order. Raises as ``CaptionPipeline.caption`` does."""
    for opened in open_batches(files, batch_size):
        images = [picture.image for _, picture in opened if isinstance(picture, LoadedImage)]
        written = [_write(arm, images) for arm in arms]
        scored = _with_scores(scorer, images, written)
        by_arm = [
            list(results_of(opened, captions, arm.choice.point)) for arm, captions in zip(arms, scored, strict=True)
        ]
        for (file, picture), results in zip(opened, zip(*by_arm, strict=True), strict=True):
            yield ComparedPicture(file, results, picture.image if isinstance(picture, LoadedImage) else None)


def _write(arm: LocalArm, images: Sequence[Image]) -> list[Caption]:
    """The best caption of each picture."""
    return [captions[0] for captions in arm.pipeline.caption(images, arm.choice.strategy).captions]


def _with_scores(
    scorer: ClipScorer, images: Sequence[Image], written: Sequence[Sequence[Caption]]
) -> list[list[list[Caption]]]:
    """The captions of each arm with their scores, a list of one for each picture. The scorer looks at a picture once,
    and equal captions get equal scores."""
    if not images:
        return [[] for _ in written]
    texts = [list(dict.fromkeys(caption.text for caption in captions)) for captions in zip(*written, strict=True)]
    scores = [dict(zip(*pair, strict=True)) for pair in zip(texts, scorer.score(images, texts), strict=True)]
    return [
        [
            [replace(caption, clip_score=known[caption.text], scorer=scorer.scorer_id)]
            for caption, known in zip(captions, scores, strict=True)
        ]
        for captions in written
    ]
