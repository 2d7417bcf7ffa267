"""Workers that share a batch have together the loss of the whole batch."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from models.families.compact import CompactCaptioner
from tests.training.objectives.support import UNEQUAL, batch_of, rows_of
from training.objectives import OBJECTIVES, choose_objective
from training.objectives.interface import Batch, Resources

EXACT: dict[str, dict[str, Any]] = {
    "mle": {},
    "smile": {"mle_weight": 0.5},
    "unkt": {"teacher": "teacher", "schedule": "fixed"},
    "contrastive": {"K": 1},
    "retrieval": {"loss": "dp", "max_tokens": 8},
}
ROUGH = {"scst"}
"""Divided by the tokens of the captions that are drawn, which only the worker knows that drew them."""
MISMATCHED = (("a red shirt", "on grass"), ("the dog",), ("a man sits", "grass", "a dog"))


def part_of(captioner: CompactCaptioner, batch: Batch, pictures: list[int]) -> Batch:
    return replace(
        batch,
        images=batch.images[pictures],
        features=batch.features[pictures],
        captions=rows_of(captioner, [UNEQUAL[picture] for picture in pictures]),
        negatives=rows_of(captioner, [MISMATCHED[picture] for picture in pictures]),
    )


def test_every_objective_is_told_of_here() -> None:
    assert {*EXACT, *ROUGH} == set(OBJECTIVES)


@pytest.mark.parametrize("name", EXACT)
def test_losses_of_parts_weighted_by_their_units_make_that_of_the_batch(
    name: str, captioner: CompactCaptioner, resources: Resources
) -> None:
    # The reference is another captioner, as after some training.
    objective = choose_objective(name, EXACT[name]).build(replace(resources, reference=resources.teacher))
    whole = batch_of(captioner, UNEQUAL, MISMATCHED)
    parts = [part_of(captioner, whole, pictures) for pictures in ([0, 1], [2])]
    with torch.no_grad():
        expected = objective(captioner, whole).total
        losses = torch.stack([objective(captioner, part).total for part in parts])
    units = torch.tensor([float(objective.count_units(part)) for part in parts])
    assert units.sum() == objective.count_units(whole)
    assert losses[0] != losses[1]
    torch.testing.assert_close((losses * units).sum() / units.sum(), expected)


def test_an_objective_of_drawn_captions_counts_pictures(captioner: CompactCaptioner, resources: Resources) -> None:
    objective = choose_objective("scst", {}).build(resources)
    assert objective.count_units(batch_of(captioner, UNEQUAL)) == 3
