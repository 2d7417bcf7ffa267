"""A cache of what a frozen encoder half gives, so that training does not repeat it every epoch."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch import Tensor

from models.families.base import TorchCaptioner
from training.augment import ViewOptions, make_view
from training.data import Example

_IMAGES_PER_PASS = 4


class FeatureCache:
    """Stem features (...), fp16, of every view of every picture, in one file that is mapped into memory."""

    def __init__(self, path: Path) -> None:
        self._array = np.load(path, mmap_mode="r")
        self.views: int = self._array.shape[1]

    def __len__(self) -> int:
        return int(self._array.shape[0])

    def get(self, index: int, view: int) -> Tensor:
        """Features (...), fp32, of one view of picture ``index``."""
        return torch.from_numpy(np.asarray(self._array[index, view], dtype=np.float32))

    def batch(self, start: int, stop: int) -> Tensor:
        """Features (B, ...), fp32, of the plain view of the pictures from ``start`` to before ``stop``."""
        return torch.from_numpy(np.asarray(self._array[start:stop, 0], dtype=np.float32))


def build_cache(
    folder: Path, captioner: TorchCaptioner, examples: Sequence[Example], views: ViewOptions, seed: int
) -> FeatureCache:
    """The cache of these pictures under this encoder, computed now unless the folder has it.

    An unfinished file of an earlier run is never taken for a finished one. Computed in bf16: a hundredth of the spread
    that the views themselves bring.

    Raises:
        ImageError: a picture cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_key(captioner, examples, views, seed)}.npy"
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}.partial")
        try:
            _compute(draft, captioner, examples, views, seed)
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)  # it is large, and of no use after an error
    return FeatureCache(path)


def _compute(path: Path, captioner: TorchCaptioner, examples: Sequence[Example], views: ViewOptions, seed: int) -> None:
    array: np.memmap | None = None
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for start in range(0, len(examples), _IMAGES_PER_PASS):
            part = examples[start : start + _IMAGES_PER_PASS]
            pixels = [pixel for example in part for pixel in _views(captioner, example, views, seed)]
            features = captioner.encode_stem(torch.stack(pixels)).half().numpy()
            if array is None:
                shape = (len(examples), views.count, *(int(size) for size in features.shape[1:]))
                array = open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
            array[start : start + len(part)] = features.reshape(len(part), views.count, *features.shape[1:])
    if array is not None:
        array.flush()


def _views(captioner: TorchCaptioner, example: Example, views: ViewOptions, seed: int) -> list[Tensor]:
    image = example.load().image
    return [
        captioner.preprocess(make_view(image, number, views, seed, example.image_id)) for number in range(views.count)
    ]


def _key(captioner: TorchCaptioner, examples: Sequence[Example], views: ViewOptions, seed: int) -> str:
    """A name that changes with anything that the features depend on."""
    digest = hashlib.sha256()
    for parameter in captioner.frozen_encoder():
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    digest.update(json.dumps([captioner.preprocessing(), seed, views.model_dump()]).encode())
    example_digest(digest, examples)
    return digest.hexdigest()[:24]


def example_digest(digest: Any, examples: Sequence[Example]) -> None:
    """Take into a ``hashlib`` digest which picture files these are, in their order."""
    for example in examples:
        stat = example.path.stat()
        name = f"{example.image_id}\0{example.file_name}\0{stat.st_size}\0{stat.st_mtime_ns}\n"
        digest.update(name.encode())
