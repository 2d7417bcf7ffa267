"""Rows that read, change places, leave and join: the logits are those of teacher forcing. In fp64."""

import pytest
import torch
from torch import Tensor

from models.families.compact.model import CompactModel
from models.families.compact.step_cache import StepCache, cat_pairs
from models.rows import keep_rows
from tests.models.families.compact.tiny import tiny_captioner

EXACT = {"atol": 1e-12, "rtol": 0.0}
START = 2


@pytest.fixture(scope="module")
def model() -> CompactModel:
    return tiny_captioner(seed=3).model.double()


class Rows:
    """A cache, and beside it the plain texts and memories of its rows."""

    def __init__(self, model: CompactModel, memory: Tensor, rows: int) -> None:
        self.model, self.memory, self.rows = model, memory, rows
        self.keys_values = model.step_memory(memory)
        self.cache = StepCache(self.keys_values)
        model.step(torch.full((len(memory),), START), self.keys_values, self.cache)
        self.cache.reorder(torch.arange(len(memory)).repeat_interleave(rows))
        self.texts = [[START] for _ in range(len(memory) * rows)]

    def step(self) -> None:
        """Append random tokens and compare the logits with those of the whole texts."""
        tokens = torch.randint(4, 20, (len(self.texts),))
        logits = self.model.step(tokens, self.keys_values, self.cache)
        for row, (text, token) in enumerate(zip(self.texts, tokens.tolist(), strict=True)):
            text.append(token)
            image = row // self.rows
            forced = self.model(self.memory[image : image + 1], torch.tensor([text])).logits
            torch.testing.assert_close(logits[row], forced[0, -1], **EXACT)

    def shuffle(self) -> None:
        """Rows of an image change places and take each other's."""
        first = torch.arange(len(self.texts)) // self.rows * self.rows
        chosen = first + torch.randint(self.rows, (len(self.texts),))
        self.cache.reorder(chosen)
        self.texts = [list(self.texts[row]) for row in chosen.tolist()]

    def keep(self, images: list[int]) -> None:
        kept = torch.tensor(images)
        self.keys_values = [(keep_rows(key, kept), keep_rows(value, kept)) for key, value in self.keys_values]
        self.cache.keep(kept)
        self.memory = self.memory[kept]
        self.texts = [self.texts[image * self.rows + row] for image in images for row in range(self.rows)]

    def join(self, other: "Rows") -> None:
        layers = zip(self.keys_values, other.keys_values, strict=True)
        self.keys_values = [cat_pairs(layer) for layer in layers]
        self.cache = StepCache.merge([self.cache, other.cache])
        self.memory, self.texts = torch.cat((self.memory, other.memory)), self.texts + other.texts


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 3, 8, 11])
def test_rows_of_any_age_read_their_own_text(model: CompactModel, count: int) -> None:
    """Eleven rows are more than share a pool."""

    def memory(images: int) -> Tensor:
        return model.remember(torch.randn(images, 4, 1280, dtype=torch.float64))

    torch.manual_seed(count)
    rows = Rows(model, memory(3), count)
    assert rows.cache.rows == count
    for _ in range(3):
        rows.step()
        rows.shuffle()
    late = Rows(model, memory(2), count)
    late.step()
    rows.join(late)
    rows.step()
    rows.shuffle()
    rows.keep([0, 4, 2])
    rows.step()
    rows.keep([1])  # the youngest: what only lined it up with the others goes
    assert rows.cache.bias.shape[2] <= 1 + count * 4
    for _ in range(6):
        rows.step()
        rows.shuffle()
