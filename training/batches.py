"""From examples to batches: packing, and an order of batches that is a function of the step alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from models.families.compact import CompactCaptioner
from training.data import Example
from training.features import FeatureCache
from training.objectives import IGNORE, Batch
from training.seeds import seed_of

Coordinate = tuple[int, int]
"""(epoch, example): what a draw is seeded by."""


@dataclass(frozen=True)
class Item:
    """One picture's features (C, h, w) and the token ids of its captions, start and end token included."""

    features: Tensor
    captions: list[list[int]]


class CaptionItems(Dataset[Item]):
    """Items by (epoch, example); the view of the picture is drawn anew every epoch."""

    def __init__(
        self,
        captioner: CompactCaptioner,
        examples: Sequence[Example],
        cache: FeatureCache,
        *,
        max_tokens: int,
        seed: int,
    ) -> None:
        self._cache = cache
        self._seed = seed
        self._captions = [_ids(captioner, example.captions, max_tokens) for example in examples]

    def __len__(self) -> int:
        return len(self._captions)

    def __getitem__(self, coordinate: Coordinate) -> Item:
        epoch, index = coordinate
        view = seed_of(self._seed, "epoch view", epoch, index) % self._cache.views
        return Item(self._cache.get(index, view), self._captions[index])


class StepBatches(Sampler[list[Coordinate]]):
    """The batches of a whole run, each epoch in its own order; an incomplete last batch of an epoch is left out.

    A run is one pass over this sampler, so that resuming at a step is skipping that many batches.
    """

    def __init__(self, examples: int, batch_size: int, epochs: int, seed: int) -> None:
        self._examples = examples
        self._batch_size = min(batch_size, examples)
        self._epochs = epochs
        self._seed = seed
        self.steps_per_epoch = examples // self._batch_size

    def __len__(self) -> int:
        return self._epochs * self.steps_per_epoch

    def __iter__(self) -> Iterator[list[Coordinate]]:
        for epoch in range(self._epochs):
            generator = torch.Generator().manual_seed(seed_of(self._seed, "order", epoch))
            order = torch.randperm(self._examples, generator=generator).tolist()
            for step in range(self.steps_per_epoch):
                chosen = order[step * self._batch_size : (step + 1) * self._batch_size]
                yield [(epoch, index) for index in chosen]


def collate(items: Sequence[Item]) -> dict[str, Batch]:
    """The items as one batch, under the name that the trained module takes it by."""
    length = max(sum(len(ids) - 1 for ids in item.captions) for item in items)
    input_ids = torch.zeros(len(items), length, dtype=torch.long)
    labels = torch.full((len(items), length), IGNORE)
    segments = torch.full((len(items), length), -1)
    for row, item in enumerate(items):
        at = 0
        for number, ids in enumerate(item.captions):
            end = at + len(ids) - 1
            input_ids[row, at:end] = torch.tensor(ids[:-1])
            labels[row, at:end] = torch.tensor(ids[1:])
            segments[row, at:end] = number
            at = end
    return {"batch": Batch(torch.stack([item.features for item in items]), input_ids, labels, segments)}


def _ids(captioner: CompactCaptioner, captions: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Ids of each caption between start and end token. A caption that is cut keeps its end token: a model that never
    sees one in long captions does not learn to stop."""
    tokens = captioner.tokenize(list(captions), max_tokens)
    return [[captioner.start_id, *ids, captioner.end_id] for ids in tokens]
