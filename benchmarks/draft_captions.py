"""Whether drafts of large JPEGs get the captions and scores of the full pictures, for ``benchmarks.preprocessing``."""

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from PIL.Image import Image

from benchmarks.large_pictures import Enlarger, Size, encoded
from models.decoding.strategy import Strategy
from models.drafting import SPARE
from models.images import load_image, read_image
from models.interfaces import Caption
from models.pipeline import CaptionPipeline
from training.data import read_dataset

HEADER = (
    *("pictures", "number", "opened as", "sides, of the model's", "equal captions, %"),
    *("CLIPScore in full", "difference, mean", "mean of its size"),
)
SIZES: tuple[Size, ...] = ((2000, 1500), (2400, 1800), (4000, 3000))
"""The second is the hardest: its draft is hardly more than twice 224 px on the shorter side."""
SPARES = (1, SPARE, 2 * SPARE)
TILE: Size = (600, 450)
MOSAIC: Size = (2400, 1800)
QUALITY = 90
_AGAIN = 85


@dataclass
class Tally:
    """What became of pictures that were opened in one way, beside the same opened in full."""

    sides: list[int] = field(default_factory=list)
    equal: list[bool] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)

    def add(self, image: Image, found: Caption, in_full: Caption) -> None:
        assert found.clip_score is not None and in_full.clip_score is not None
        self.sides.append(min(image.size))
        self.equal.append(found.text == in_full.text)
        self.scores.append(in_full.clip_score)
        self.differences.append(found.clip_score - in_full.clip_score)

    def row(self, name: str, way: str, side_px: int) -> tuple[object, ...]:
        """A row under ``HEADER``."""
        off = self.differences
        numbers = [f"{statistics.mean(each):.4f}" for each in (self.scores, off, [abs(value) for value in off])]
        ratio = f"x{statistics.mean(self.sides) / side_px:.2f}"
        return (name, len(self.equal), way, ratio, 100 * statistics.mean(self.equal), *numbers)


def agreement(
    pipeline: CaptionPipeline, strategy: Strategy, asked: argparse.Namespace
) -> Iterator[list[tuple[object, ...]]]:
    """Rows under ``HEADER``, for one kind of pictures after the other."""
    folder = asked.images or asked.data.parent / "images"
    data = read_dataset("karpathy", {"path": str(asked.data), "images_root": str(folder)}, [asked.split])
    paths = [example.path for example in data.split(asked.split)[: asked.pictures]]
    for size in asked.size or SIZES:
        enlarger = Enlarger(size)
        large = (enlarger.enlarged(read_image(path).image) for path in paths)
        yield _compare(pipeline, strategy, f"enlarged to {size[0]}x{size[1]}", large)
    if asked.tiles is not None:
        tiles = [read_image(path).image for path in sorted(asked.tiles.iterdir())]
        enlarger = Enlarger(MOSAIC)
        mosaics = (enlarger.mosaic(tiles, TILE) for _ in range(asked.pictures))
        yield _compare(pipeline, strategy, f"{MOSAIC[0] // TILE[0] * (MOSAIC[1] // TILE[1])} side by side", mosaics)


def _compare(
    pipeline: CaptionPipeline, strategy: Strategy, name: str, pictures: Iterator[Image]
) -> list[tuple[object, ...]]:
    assert pipeline.draft_px is not None
    side_px = pipeline.draft_px // SPARE
    ways = {f"draft, sides at least x{spare}": _draft(spare * side_px) for spare in SPARES}
    ways[f"saved again, quality {_AGAIN}"] = _saved_again
    tallies = {way: Tally() for way in ways}
    for picture in pictures:
        data = encoded(picture, quality=QUALITY)
        opened = {way: image for way, open_ in ways.items() if (image := open_(data)) is not None}
        _count(pipeline, strategy, load_image(data).image, opened, tallies)
    return [tally.row(name, way, side_px) for way, tally in tallies.items() if tally.equal]


def _draft(px: int) -> Callable[[bytes], Image | None]:
    def open_draft(data: bytes) -> Image | None:
        loaded = load_image(data, draft_px=px)
        return None if loaded.image.size == loaded.size else loaded.image

    return open_draft


def _saved_again(data: bytes) -> Image:
    """In full, with a little more damage: a measure of how much captions depend on such things at all."""
    return load_image(encoded(load_image(data).image, quality=_AGAIN)).image


def _count(
    pipeline: CaptionPipeline, strategy: Strategy, full: Image, opened: dict[str, Image], tallies: dict[str, Tally]
) -> None:
    """Caption the picture as it was opened in each way, all together."""
    found = pipeline.caption([full, *opened.values()], strategy, score=True).captions
    for (way, image), captions in zip(opened.items(), found[1:], strict=True):
        tallies[way].add(image, captions[0], found[0][0])
