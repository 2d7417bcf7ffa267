"""The pictures and captions of a split as the scorer's training sees them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from models.families.compact import CompactCaptioner
from models.families.compact.config import CompactConfig
from training.augment import ViewOptions
from training.data import Example
from training.features import FeatureCache, build_cache
from training.packages import load_imagenet


@dataclass(frozen=True)
class Corpus:
    """B pictures with any number of captions each; captions are numbered through."""

    cache: FeatureCache
    captions: tuple[str, ...]
    owner: np.ndarray
    """Number of the picture of each caption."""
    starts: np.ndarray
    """(B + 1,): number of each picture's first caption."""
    text_ids: np.ndarray
    """Equal for captions that are equal but for case and spacing."""

    @property
    def pictures(self) -> int:
        """How many there are."""
        return len(self.cache)

    def grid(self, pictures: Sequence[int], views: Sequence[int]) -> Tensor:
        """Cells (B, S, C), fp32, of one view of each picture."""
        cells = [
            self.cache.get(int(picture), int(view)).flatten(1).T for picture, view in zip(pictures, views, strict=True)
        ]
        return torch.stack(cells)

    def draw(self, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distinct pictures, a view and the number of a caption of each; at most ``size``."""
        pictures = rng.choice(self.pictures, min(size, self.pictures), replace=False)
        views = rng.integers(0, self.cache.views, len(pictures))
        return pictures, views, rng.integers(self.starts[pictures], self.starts[pictures + 1])

    def same_text(self, captions: np.ndarray) -> Tensor:
        """(n, n), True where two of these captions are equal."""
        ids = torch.from_numpy(self.text_ids[captions])
        return ids[:, None] == ids[None]


def build_corpus(examples: Sequence[Example], cache: FeatureCache) -> Corpus:
    """The corpus of examples in the order of the cache."""
    captions = tuple(caption for example in examples for caption in example.captions)
    counts = np.array([len(example.captions) for example in examples])
    known: dict[str, int] = {}
    return Corpus(
        cache=cache,
        captions=captions,
        owner=np.repeat(np.arange(len(examples)), counts),
        starts=np.concatenate([[0], counts.cumsum()]),
        text_ids=np.array([known.setdefault(" ".join(text.lower().split()), len(known)) for text in captions]),
    )


def cache_features(
    folder: Path,
    examples: Sequence[Example],
    *,
    vision: str,
    image_size_px: int,
    tokenizer: Tokenizer,
    views: ViewOptions,
    seed: int,
) -> FeatureCache:
    """Block outputs of every view, cached under the same name as a captioner on the same encoder would.

    Raises:
        ImageError: a picture cannot be read.
        MissingDependencyError: no package holds the encoder's weights.
    """
    config = CompactConfig(vision=vision, image_size_px=image_size_px, vocab_size=tokenizer.get_vocab_size())
    captioner = CompactCaptioner(config, tokenizer)
    load_imagenet(captioner.model.vision, vision)
    captioner.model.vision.to(memory_format=torch.channels_last)
    captioner.train_encoder(True)  # the scorer trains the last convolution too: its input is what is worth keeping
    return build_cache(folder, captioner.eval(), examples, views, seed)
