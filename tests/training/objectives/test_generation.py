"""Captions that the captioner writes inside a loss."""

import pytest
import torch

from models.decoding import parse_decode
from models.decoding.loop import decode
from models.families.compact import CompactCaptioner
from models.interfaces import Hypothesis
from tests.training.objectives.support import batch_of
from training.objectives.generation import evaluating, generate, generated_rows
from training.objectives.interface import IGNORE

SAMPLE = parse_decode({"name": "sample", "options": {"max_tokens": 6}})


def test_inside_the_block_the_captioner_evaluates_without_gradient(trainee: CompactCaptioner) -> None:
    with evaluating(trainee):
        assert not trainee.training
        assert not torch.is_grad_enabled()
    assert trainee.training
    assert torch.is_grad_enabled()


def test_the_mode_comes_back_after_an_error(trainee: CompactCaptioner) -> None:
    with pytest.raises(RuntimeError, match="broken"), evaluating(trainee):
        raise RuntimeError("broken")
    assert trainee.training
    assert torch.is_grad_enabled()


def test_a_captioner_in_eval_mode_stays_in_it(captioner: CompactCaptioner) -> None:
    with evaluating(captioner):
        pass
    assert not captioner.training


def test_captions_are_written_without_dropout(trainee: CompactCaptioner, captioner: CompactCaptioner) -> None:
    for module in trainee.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    batch = batch_of(trainee)
    memory = captioner.encode_from_stem(batch.features).detach()
    found = generate(trainee, memory, SAMPLE, batch=3, num_captions=2, seeds=[1, 2, 3])
    assert found == decode(captioner, memory, SAMPLE, batch=3, num_captions=2, seeds=[1, 2, 3])
    assert [len(captions) for captions in found] == [2, 2, 2]


def written(tokens: tuple[int, ...], *, ended: bool) -> Hypothesis:
    return Hypothesis(tokens, -1.0, -1.0, "stop" if ended else "length")


def test_the_end_of_a_cut_caption_is_no_target(captioner: CompactCaptioner) -> None:
    start, end = captioner.start_id, captioner.end_id
    rows = generated_rows(
        captioner,
        [
            [written((5, 6), ended=True), written((7, 8), ended=False)],
            [written((), ended=True), written((9,), ended=False)],
        ],
    )
    assert rows.input_ids.tolist() == [[start, 5, 6, start, 7], [start, start, 0, 0, 0]]
    assert rows.labels.tolist() == [[5, 6, end, 7, 8], [end, 9, IGNORE, IGNORE, IGNORE]]
    assert rows.targets.caption.tolist() == [0, 0, 0, 1, 1, 2, 3]
