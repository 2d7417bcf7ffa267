"""Picture files named on a command line: found in folders, captioned in batches, told row by row."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from models.decoding.strategy import Strategy
from models.errors import ImageError, RequestError
from models.images import LoadedImage, read_image
from models.interfaces import Caption
from models.pipeline import CaptionPipeline
from serving.messages import CaptionedImage, Failure
from serving.points import Point
from serving.results import result_of

_SUFFIXES = frozenset(".jpg .jpeg .jfif .png .gif .webp .avif .heic .heif .bmp .tif .tiff .ppm .pgm .pbm .pnm".split())
_SYSTEM_FILES = frozenset({"thumbs.db", "desktop.ini"})
_NOT_PICTURES = frozenset({"empty", "not_an_image", "unsupported_format"})
_MAX_BATCH_PX = 192_000_000  # decoded pixels held at a time
_AS_THE_CARD_SAYS = Point()


@dataclass(frozen=True)
class PictureFile:
    """A file to caption. Names that are not UTF-8 are kept as Python keeps them, with surrogates."""

    path: str
    name: str
    """What its row is called: relative to the folder given, or the path itself."""
    named: bool
    """Whether it must be a picture: given by itself, or named like one. Other files of a folder are skipped if not."""


Opened = tuple[PictureFile, LoadedImage | Failure]
"""A file and its picture, or why there is none."""


def find_pictures(paths: Iterable[str], *, recursive: bool = False) -> list[PictureFile]:
    """The files that ``paths`` name, folders listed in order of their bytes; what does not exist is in the list too,
    to fail in its turn."""
    found: list[PictureFile] = []
    for path in paths:
        if os.path.isdir(path):
            names = sorted(_walk(path, "", recursive), key=os.fsencode)
            found += [PictureFile(os.path.join(path, name), name, _looks_like_one(name)) for name in names]
        else:
            found.append(PictureFile(path, path, True))
    return found


def nothing_in(paths: Sequence[str]) -> RequestError:
    """The refusal of paths that lead to no picture."""
    if missing := [path for path in paths if not os.path.lexists(path)]:
        return RequestError("invalid_request", f"{missing[0]!r} does not exist")
    where = ", ".join(map(repr, paths))
    return RequestError("invalid_request", f"no pictures in {where} (-r looks into subfolders too)")


def open_batches(files: Iterable[PictureFile], batch_size: int) -> Iterator[list[Opened]]:
    """The files with their pictures or errors, in order, as many at a time as make ``batch_size`` pictures or fill the
    memory set aside for them; files of a folder that are no pictures are left out."""
    waiting: list[Opened] = []
    pending, px = 0, 0
    for file in files:
        try:
            opened: LoadedImage | Failure = read_image(file.path)
        except ImageError as error:
            if not file.named and error.code in _NOT_PICTURES:
                continue
            opened = Failure(error.code, error.detail)
        waiting.append((file, opened))
        if isinstance(opened, LoadedImage):
            pending, px = pending + 1, px + opened.image.width * opened.image.height
        if pending >= batch_size or px >= _MAX_BATCH_PX:
            yield waiting
            waiting, pending, px = [], 0, 0
    if waiting:
        yield waiting


def caption_files(
    pipeline: CaptionPipeline,
    files: Iterable[PictureFile],
    strategy: Strategy,
    *,
    num_captions: int = 1,
    score: bool = False,
    rerank: bool = False,
    point: Point = _AS_THE_CARD_SAYS,
    batch_size: int = 16,
) -> Iterator[tuple[PictureFile, CaptionedImage]]:
    """Each file with its captions or its error, in order; files of a folder that are no pictures are left out.

    Args:
        point: where in the model's weight space ``pipeline`` is, for the record.
    """
    for opened in open_batches(files, batch_size):
        images = [picture.image for _, picture in opened if isinstance(picture, LoadedImage)]
        found = pipeline.caption(images, strategy, num_captions=num_captions, score=score, rerank=rerank).captions
        yield from zip((file for file, _ in opened), results_of(opened, found, point), strict=True)


def results_of(
    opened: Sequence[Opened], captions: Iterable[Sequence[Caption]], point: Point
) -> Iterator[CaptionedImage]:
    """One result for each file of a batch; ``captions`` are those of its pictures."""
    found = iter(captions)
    for _, picture in opened:
        if isinstance(picture, Failure):
            yield CaptionedImage(error=picture, point=point)
        else:
            yield CaptionedImage(tuple(next(found)), picture.notes, point=point)


def row_of(file: PictureFile, image: CaptionedImage, model: str) -> dict[str, Any]:
    """One result of ``/v1/captions`` with ``file_name`` in place of ``index``, and the model."""
    return {"file_name": file.name, **result_of(image).model_dump(mode="json"), "model": model}


def _walk(root: str, inside: str, recursive: bool) -> Iterator[str]:
    """Names below ``root``; hidden entries, system files, sockets and the like, and linked folders are left out."""
    with os.scandir(os.path.join(root, inside)) as entries:
        for entry in entries:
            name = os.path.join(inside, entry.name)
            if entry.name.startswith(".") or entry.name.lower() in _SYSTEM_FILES:
                continue
            if _is_file(entry):
                yield name
            elif recursive and entry.is_dir(follow_symlinks=False):
                yield from _walk(root, name, recursive)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file; so is a link in a loop, which then fails by itself when it is opened."""
    try:
        return entry.is_file()
    except OSError:
        return True


def _looks_like_one(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in _SUFFIXES
