"""The table of rewards, and what every entry of it owes the objective."""

import pytest
import torch

from models.lookup import resolve
from training.objectives.interface import Resources
from training.rewards import REWARDS


@pytest.mark.parametrize("name", REWARDS)
def test_a_number_for_every_caption_whatever_stands_beside_it(name: str, resources: Resources) -> None:
    reward = resolve("reward", REWARDS, name)(resources)
    captions = [["a dog", "the man plays"], ["a man sits on a dog", ""]]
    found = reward([2, 0], captions)
    assert found.shape == (2, 2)
    assert found.dtype == torch.float32
    assert torch.isfinite(found).all()
    assert not found.requires_grad
    for row, image in enumerate([2, 0]):
        for column in range(2):
            alone = reward([image], [[captions[row][column]]])
            torch.testing.assert_close(alone[0, 0], found[row, column], rtol=1e-5, atol=1e-6)
