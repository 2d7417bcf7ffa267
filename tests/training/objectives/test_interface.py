"""What objectives are given: targets of rows, records that move, the teacher-forced pass over rows."""

import pytest
import torch

from models.families.compact import CompactCaptioner
from tests.training.objectives.support import UNEQUAL, batch_of
from training.objectives.interface import IGNORE, Batch, Objective, Resources, Rows, Targets, teacher_force
from training.objectives.mle import Mle

TARGETS = Targets(torch.tensor([5, 7, 3, 4, 3, 3]), torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 0, 2]))


def test_first_targets() -> None:
    assert TARGETS.first.tolist() == [True, False, False, True, False, True]


def test_sums_by_caption_carry_a_gradient() -> None:
    values = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], requires_grad=True)
    sums = TARGETS.sum_by_caption(values)
    assert sums.tolist() == [7.0, 24.0, 32.0]
    (sums * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 1.0, 1.0, 10.0, 10.0, 100.0]


def test_labels_of_each_caption_as_a_padded_row() -> None:
    assert TARGETS.padded(-1).tolist() == [[5, 7, 3], [4, 3, -1], [3, -1, -1]]


def test_no_targets_at_all() -> None:
    rows = Rows(torch.zeros(2, 3, dtype=torch.long), torch.full((2, 3), IGNORE), torch.full((2, 3), -1))
    targets = rows.targets
    assert len(targets.labels) == len(targets.row) == len(targets.first) == 0
    assert targets.padded(-1).shape == (0, 0)
    assert targets.sum_by_caption(torch.zeros(0)).shape == (0,)


def test_targets_of_packed_rows_in_their_order() -> None:
    """Two captions, one with a target that is token 0, then a row whose first position is no target."""
    rows = Rows(
        torch.tensor([[2, 5, 2, 6, 0], [2, 7, 8, 0, 0]]),
        torch.tensor([[5, 3, 6, 0, 3], [IGNORE, 8, 3, IGNORE, IGNORE]]),
        torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, -1, -1]]),
    )
    targets = rows.targets
    assert targets.labels.tolist() == [5, 3, 6, 0, 3, 8, 3]
    assert targets.caption.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert targets.row.tolist() == [0, 0, 1]
    assert targets.first.nonzero().flatten().tolist() == [0, 2, 5]


def test_a_batch_moves_with_all_its_records(captioner: CompactCaptioner) -> None:
    batch = batch_of(captioner, UNEQUAL, UNEQUAL)
    moved = batch.to(torch.device("meta"))
    assert moved.negatives is not None
    tensors = [moved.images, moved.features, moved.captions.labels, moved.captions.segments, moved.negatives.input_ids]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert (moved.step, moved.steps) == (batch.step, batch.steps)
    assert batch_of(captioner).to(torch.device("meta")).negatives is None


def test_targets_move_too() -> None:
    assert TARGETS.to(torch.device("meta")).caption.device.type == "meta"


def test_an_objective_needs_and_keeps_nothing_unless_it_says_so() -> None:
    options = Mle.Options()
    assert Mle.needs(options) == frozenset()
    assert Mle.negatives(options) is None
    objective: Objective = Mle(options)
    assert objective.resources == Resources()
    assert objective.state_dict() == {}
    objective.load_state_dict({})
    with pytest.raises(AssertionError):
        objective.load_state_dict({"unknown": torch.zeros(1)})


@torch.no_grad()
def test_the_pass_over_rows_gives_what_was_asked_for(captioner: CompactCaptioner) -> None:
    batch: Batch = batch_of(captioner)
    memory, rows = captioner.encode_from_stem(batch.features), batch.captions
    plain = teacher_force(captioner, memory, rows)
    assert plain.logits is not None and plain.states is not None
    assert plain.logits.shape == (len(rows.targets.labels), captioner.vocab_size)
    torch.testing.assert_close(captioner.project(plain.states), plain.logits)
    whole = captioner.forward_teacher(memory, rows.input_ids, (rows.segments >= 0).long(), segments=rows.segments)
    assert whole.logits is not None
    torch.testing.assert_close(plain.logits, whole.logits[rows.is_target])
    spared = teacher_force(captioner, memory, rows, output_logits=False, output_hidden_states=True)
    assert spared.logits is None
    assert spared.hidden_states is not None
