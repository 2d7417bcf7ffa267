"""Made once for all tests of this package, which leave them as they are: a captioner, pictures, their cache."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image

from models.families.compact import CompactCaptioner
from tests.models.families.compact.tiny import tiny_captioner
from training.augment import ViewOptions
from training.batches import CaptionItems, Item, collator
from training.data import Example
from training.features import FeatureCache, build_cache
from training.objectives.interface import Batch

CAPTIONS = (
    ("a dog", "the dog runs on grass"),
    ("the man in red t-shirt", "a man sits"),
    ("a child", "a child plays in the grass"),
    ("dog on a man", "the child sits on a dog in the grass"),
)
SEED = 3
VIEWS = ViewOptions(count=3)


@dataclass(frozen=True)
class TinyData:
    """Four pictures with two captions each, and the cached features of three views of each."""

    examples: Sequence[Example]
    cache: FeatureCache
    items: CaptionItems


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads wait for each other where other processes want the cores, and make tiny models far slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def captioner() -> CompactCaptioner:
    """In eval mode, without dropout; the last blocks of its encoder can be trained, so that features are the stem's."""
    own = tiny_captioner()
    own.train_encoder(True)
    return own


@pytest.fixture
def trainee(captioner: CompactCaptioner) -> CompactCaptioner:
    """A captioner of one's own, in train mode; only what training changes requires a gradient."""
    return deepcopy(captioner).train()


@pytest.fixture(scope="session")
def data(captioner: CompactCaptioner, tmp_path_factory: pytest.TempPathFactory) -> TinyData:
    folder = tmp_path_factory.mktemp("tiny-data")
    rng = np.random.default_rng(0)
    examples = []
    for number, captions in enumerate(CAPTIONS):
        path = folder / f"{number}.png"
        Image.fromarray(rng.integers(0, 256, (48, 40, 3), dtype=np.uint8)).save(path)
        examples.append(Example(f"id{number}", path, captions))
    cache = build_cache(folder / "features", captioner, examples, VIEWS, SEED)
    return TinyData(examples, cache, CaptionItems(captioner, examples, cache, max_tokens=14, seed=SEED))


@pytest.fixture
def batch(data: TinyData) -> Batch:
    """All four pictures with all their captions."""
    return collate([data.items[(0, index)] for index in range(len(data.items))])


def collate(items: Sequence[Item]) -> Batch:
    """The items as one batch of packed rows."""
    return collator(packed=True)(items)["batch"]
