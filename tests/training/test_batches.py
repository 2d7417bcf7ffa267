"""Packing of captions, and the order of batches."""

import itertools

import pytest
import torch

from models.errors import DataError
from models.families.compact import CompactCaptioner
from tests.training.conftest import CAPTIONS, SEED, VIEWS, TinyData, collate
from training.batches import CaptionItems, Item, StepBatches
from training.objectives.interface import IGNORE, Batch

START, END = 2, 3


def epochs_of(sampler: StepBatches) -> list[list[list[int]]]:
    """Batches of example numbers, by epoch."""
    groups = itertools.groupby(sampler, key=lambda batch: batch[0][0])
    return [[[index for _, index in batch] for batch in batches] for _, batches in groups]


# --- order ----------------------------------------------------------------------------------------------------------


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    long, short = epochs_of(StepBatches(10, 3, 4, seed=1)), epochs_of(StepBatches(10, 3, 2, seed=1))
    assert long[:2] == short
    assert len({str(epoch) for epoch in long}) == 4
    assert epochs_of(StepBatches(10, 3, 4, seed=2)) != long


def test_the_order_does_not_depend_on_live_random_state() -> None:
    sampler = StepBatches(10, 3, 2, seed=1)
    first = list(sampler)
    torch.rand(5)
    assert list(sampler) == first


def test_every_example_comes_at_most_once_an_epoch_and_in_one_epoch_only() -> None:
    sampler = StepBatches(10, 3, 4, seed=0)
    assert (sampler.steps_per_epoch, len(sampler)) == (3, 12)
    assert len(list(sampler)) == 12
    for epoch in epochs_of(sampler):
        seen = [index for batch in epoch for index in batch]
        assert len(epoch) == 3 and len(seen) == len(set(seen)) == 9
    assert all(len({epoch for epoch, _ in batch}) == 1 for batch in sampler)
    assert {index for epoch in epochs_of(sampler) for batch in epoch for index in batch} == set(range(10))


def test_fewer_examples_than_a_batch_make_one_smaller_batch() -> None:
    assert [sorted(batch) for batch in StepBatches(2, 24, 2, seed=0)] == [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]


# --- items ----------------------------------------------------------------------------------------------------------


def test_captions_stand_between_start_and_end_token(captioner: CompactCaptioner, data: TinyData) -> None:
    item = data.items[(0, 1)]
    assert [captioner.detokenize(ids) for ids in item.captions] == list(CAPTIONS[1])
    assert all((ids[0], ids[-1]) == (START, END) for ids in item.captions)
    assert item.features.shape == (320, 2, 2)


def test_a_caption_that_is_cut_keeps_its_end_token(captioner: CompactCaptioner, data: TinyData) -> None:
    items = CaptionItems(captioner, data.examples, data.cache, max_tokens=4, seed=SEED)
    ids = items[(0, 3)].captions[1]
    assert len(ids) == 6
    assert ids[-1] == END
    assert ids[:5] == data.items[(0, 3)].captions[1][:5]


def test_the_view_is_drawn_from_the_epoch(data: TinyData) -> None:
    again = [data.items[(5, 2)].features for _ in range(2)]
    assert torch.equal(*again)
    views = [data.cache.get(2, view) for view in range(VIEWS.count)]
    drawn = [
        next(number for number, view in enumerate(views) if torch.equal(view, data.items[(epoch, 2)].features))
        for epoch in range(40)
    ]
    assert set(drawn) == set(range(VIEWS.count))


# --- packing --------------------------------------------------------------------------------------------------------


@pytest.fixture
def packed() -> Batch:
    items = [
        Item(0, torch.zeros(1, 1, 1), [[START, 7, END], [START, 8, 9, END]]),
        Item(1, torch.ones(1, 1, 1), [[START, 0, END]]),  # a token with the id of padding
    ]
    return collate(items)


def test_packing_worked_out_by_hand(packed: Batch) -> None:
    x = IGNORE
    assert packed.captions.input_ids.tolist() == [[START, 7, START, 8, 9], [START, 0, 0, 0, 0]]
    assert packed.captions.labels.tolist() == [[7, END, 8, 9, END], [0, END, x, x, x]]
    assert packed.captions.segments.tolist() == [[0, 0, 1, 1, 1], [0, 0, -1, -1, -1]]
    assert packed.features.flatten().tolist() == [0.0, 1.0]


def test_padding_is_never_a_target(packed: Batch) -> None:
    assert ((packed.captions.segments < 0) == (packed.captions.labels == IGNORE)).all()


def test_a_batch_moves_as_a_whole(packed: Batch) -> None:
    moved = packed.to(torch.device("meta"))
    tensors = (moved.images, moved.features, moved.captions.input_ids, moved.captions.labels, moved.captions.segments)
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_workers_have_each_their_part_of_every_batch() -> None:
    whole = list(StepBatches(13, 5, 2, seed=4))
    parts = [list(StepBatches(13, 5, 2, seed=4, worker=worker, workers=2)) for worker in range(2)]
    assert [len(part) for part in parts] == [len(whole)] * 2
    for batch, *of_batch in zip(whole, *parts, strict=True):
        assert sorted(of_batch[0] + of_batch[1]) == sorted(batch)
        assert [len(part) for part in of_batch] == [3, 2]


def test_there_must_be_a_picture_for_each_worker() -> None:
    with pytest.raises(DataError, match="2 pictures a step.*3 workers"):
        StepBatches(2, 6, 1, seed=0, workers=3)
