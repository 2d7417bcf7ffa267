"""From examples to batches, in an order that is a function of the step alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from models.errors import DataError
from models.families.base import TorchCaptioner
from training.data import Example
from training.features import FeatureCache
from training.negatives import NegativeSampler
from training.objectives.interface import Batch
from training.rows import caption_ids, make_rows
from training.seeds import seed_of

Coordinate = tuple[int, int]
"""(epoch, example): what a draw is seeded by."""


@dataclass(frozen=True)
class Item:
    """One picture's features (C, h, w) and the token ids of its captions, start and end token included."""

    index: int
    features: Tensor
    captions: list[list[int]]
    negatives: list[list[int]] | None = None
    """Captions of other pictures."""


class CaptionItems(Dataset[Item]):
    """Items by (epoch, example); view, captions and negatives of the picture are drawn anew every epoch."""

    def __init__(
        self,
        captioner: TorchCaptioner,
        examples: Sequence[Example],
        cache: FeatureCache,
        *,
        max_tokens: int,
        seed: int,
        captions_per_image: int | None = None,
        negatives: NegativeSampler | None = None,
    ) -> None:
        self._cache = cache
        self._seed = seed
        self._ids = [example.image_id for example in examples]
        self._captions = [caption_ids(captioner, example.captions, max_tokens) for example in examples]
        self._per_image = captions_per_image
        self._negatives = negatives

    def __len__(self) -> int:
        return len(self._captions)

    def image_id(self, index: int) -> str:
        """The id of a picture, for messages."""
        return self._ids[index]

    def __getitem__(self, coordinate: Coordinate) -> Item:
        epoch, index = coordinate
        view = seed_of(self._seed, "epoch view", epoch, index) % self._cache.views
        captions = self._drawn(epoch, index)
        negatives = None
        if self._negatives is not None:
            drawn = self._negatives.draw(epoch, index, len(captions))
            negatives = [self._captions[other][number] for other, number in drawn]
        return Item(index, self._cache.get(index, view), captions, negatives)

    def _drawn(self, epoch: int, index: int) -> list[list[int]]:
        captions = self._captions[index]
        if self._per_image is None or len(captions) <= self._per_image:
            return captions
        rng = np.random.default_rng(seed_of(self._seed, "captions", epoch, index))
        return [captions[number] for number in rng.permutation(len(captions))[: self._per_image]]


class StepBatches(Sampler[list[Coordinate]]):
    """The batches of a whole run, each epoch in its own order; an incomplete last batch of an epoch is left out.

    A run is one pass over this sampler, so that resuming at a step is skipping that many batches. Of several workers
    each gets its own part of every batch.
    """

    def __init__(
        self, examples: int, batch_size: int, epochs: int, seed: int, *, worker: int = 0, workers: int = 1
    ) -> None:
        """``batch_size`` counts the pictures of all workers.

        Raises:
            DataError: ``no_data``, there is not a picture for each worker.
        """
        self._examples = examples
        self._batch_size = min(batch_size, examples)
        self._epochs = epochs
        self._seed = seed
        self._part = slice(worker, None, workers)
        if self._batch_size < workers:
            raise DataError("no_data", f"{self._batch_size} pictures a step are too few for {workers} workers")
        self.steps_per_epoch = examples // self._batch_size

    def __len__(self) -> int:
        return self._epochs * self.steps_per_epoch

    def __iter__(self) -> Iterator[list[Coordinate]]:
        for epoch in range(self._epochs):
            generator = torch.Generator().manual_seed(seed_of(self._seed, "order", epoch))
            order = torch.randperm(self._examples, generator=generator).tolist()
            for step in range(self.steps_per_epoch):
                chosen = order[step * self._batch_size : (step + 1) * self._batch_size]
                yield [(epoch, index) for index in chosen[self._part]]


def collator(*, packed: bool) -> Callable[[Sequence[Item]], dict[str, Batch]]:
    """What makes a batch of items, under the name that the trained module takes it by."""

    def collate(items: Sequence[Item]) -> dict[str, Batch]:
        negatives = [item.negatives for item in items if item.negatives is not None]
        batch = Batch(
            images=torch.tensor([item.index for item in items]),
            features=torch.stack([item.features for item in items]),
            captions=make_rows([item.captions for item in items], packed=packed),
            negatives=make_rows(negatives, packed=packed) if negatives else None,
        )
        return {"batch": batch}

    return collate
