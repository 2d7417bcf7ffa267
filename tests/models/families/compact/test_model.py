"""Teacher forcing, steps and packed rows are three ways to the same numbers. All in fp64, where they agree to 1e-12."""

import pytest
import torch
from torch import Tensor

from models.families.compact.model import CompactModel
from models.families.compact.step_cache import StepCache
from tests.models.families.compact.tiny import tiny_captioner

EXACT = {"atol": 1e-12, "rtol": 0.0}
START = 2


@pytest.fixture(scope="module")
def model() -> CompactModel:
    return tiny_captioner(seed=3).model.double()


@pytest.fixture(scope="module")
def memory(model: CompactModel) -> Tensor:
    with torch.no_grad():
        return model.remember(torch.randn(2, 4, 1280, dtype=torch.float64))


def _captions(rows: int, length: int) -> Tensor:
    ids = torch.randint(4, 20, (rows, length))
    ids[:, 0] = START
    return ids


def test_memory_has_a_vector_for_each_cell_and_one_for_their_mean(model: CompactModel, memory: Tensor) -> None:
    assert memory.shape == (2, 5, 16)
    assert model.null_memory.shape == (5, 16)


@torch.no_grad()
def test_steps_give_the_logits_of_teacher_forcing(model: CompactModel, memory: Tensor) -> None:
    ids = _captions(6, 7)  # R = 2 images x 3 rows
    forced = model(memory, ids).logits
    keys_values = model.step_memory(memory)
    cache = StepCache(keys_values)
    cache.reorder(torch.arange(2).repeat_interleave(3))
    for position in range(ids.shape[1]):
        logits = model.step(ids[:, position], keys_values, cache)
        torch.testing.assert_close(logits, forced[:, position], **EXACT)


@torch.no_grad()
def test_a_row_sees_its_own_image_only(model: CompactModel, memory: Tensor) -> None:
    ids = _captions(4, 5)
    both = model(memory, ids).logits
    torch.testing.assert_close(model(memory[1:], ids[2:]).logits, both[2:], **EXACT)
    assert (model(memory[:1], ids[2:]).logits - both[2:]).abs().max() > 1e-3


@torch.no_grad()
def test_padding_on_the_right_changes_nothing_before_it(model: CompactModel, memory: Tensor) -> None:
    ids = _captions(2, 4)
    padded = torch.cat([ids, torch.zeros(2, 3, dtype=torch.long)], dim=1)
    torch.testing.assert_close(model(memory, padded).logits[:, :4], model(memory, ids).logits, **EXACT)


@torch.no_grad()
def test_packed_captions_equal_separate_rows(model: CompactModel, memory: Tensor) -> None:
    lengths = (3, 5, 4)
    captions = [[_captions(1, length) for length in lengths] for _ in range(2)]
    padding = torch.zeros(1, 6, dtype=torch.long)  # with it a row is longer than max_positions
    ids = torch.cat([torch.cat([*image, padding], dim=1) for image in captions])
    segments = torch.tensor([[0] * 3 + [1] * 5 + [2] * 4 + [3] * 6] * 2)
    assert ids.shape[1] > model.config.max_positions
    packed = model(memory, ids, segments).logits
    for image in range(2):
        rows = packed[image : image + 1].split((*lengths, 6), dim=1)
        for caption, logits in zip(captions[image], rows[:3], strict=True):
            torch.testing.assert_close(logits, model(memory[image : image + 1], caption).logits, **EXACT)


@torch.no_grad()
def test_what_objectives_may_ask_for_comes_only_when_asked(model: CompactModel, memory: Tensor) -> None:
    ids = _captions(4, 6)
    plain = model(memory, ids)
    assert (plain.hidden_states, plain.self_attentions, plain.cross_attentions) == (None, None, None)
    full = model(memory, ids, hidden=True, attentions=True)
    assert [tuple(state.shape) for state in full.hidden_states] == [(4, 6, 16)] * 2
    assert [tuple(weights.shape) for weights in full.self_attentions] == [(4, 2, 6, 6)] * 2
    assert [tuple(weights.shape) for weights in full.cross_attentions] == [(4, 2, 6, 5)] * 2
    torch.testing.assert_close(model.logits(full.hidden_states[-1]), full.logits, **EXACT)
    above_diagonal = torch.ones(6, 6, dtype=torch.bool).triu(1)
    assert all(float(weights[..., above_diagonal].abs().max()) == 0 for weights in full.self_attentions)


def test_every_parameter_learns(model: CompactModel) -> None:
    memory = model.remember(torch.randn(2, 4, 1280, dtype=torch.float64))
    null = model.null_memory.expand(2, -1, -1)
    model(torch.cat([memory, null]), _captions(4, 5)).logits.logsumexp(-1).sum().backward()
    unused = {name for name, p in model.named_parameters() if not name.startswith("vision.") and p.grad is None}
    model.zero_grad()
    assert unused == set()
