"""SMILE's variants: what stands for a first token, and which words are its rivals."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from models.families.base import TorchCaptioner
from models.families.compact import CompactCaptioner
from tests.training.objectives.support import batch_of
from tests.training.objectives.test_smile import smile
from training.objectives.interface import Batch
from training.objectives.mle import Mle
from training.objectives.smile import Smile


def token_losses(captioner: CompactCaptioner, batch: Batch, **options: Any) -> Tensor:
    """The loss of every target (N,)."""
    objective = Smile(Smile.Options(**options))
    targets = batch.captions.targets
    memory = captioner.encode_from_stem(batch.features)
    forced = captioner.forward_teacher(
        memory,
        batch.captions.input_ids,
        (batch.captions.segments >= 0).long(),
        segments=batch.captions.segments,
        at=batch.captions.is_target,
    )
    return objective._subset_losses(captioner, forced.states, forced.logits, targets)


@torch.no_grad()
def test_first_tokens(captioner: CompactCaptioner) -> None:
    """``none`` differs from ``mle`` in the first token alone, whose loss it makes smaller."""
    batch = batch_of(captioner, [["a dog"], ["man in grass"]])
    first = batch.captions.targets.first
    plain, none = (token_losses(captioner, batch, first_token=kind) for kind in ("mle", "none"))
    torch.testing.assert_close(plain[~first], none[~first])
    assert (none[first] < plain[first]).all()


@torch.no_grad()
def test_a_shifted_first_token_is_its_continuation_piece(captioner: CompactCaptioner) -> None:
    """ "s dog" is learned as "##s dog", also by its other tokens, which compete with ##s and no longer with s."""
    words = captioner.vocabulary()
    assert captioner.continuation(words["s"]) == words["##s"]
    batch = batch_of(captioner, [["s dog"]])
    losses = token_losses(captioner, batch, first_token="none")
    memory = captioner.encode_from_stem(batch.features)
    _, logits = captioner.start(memory)
    subset = [words["##s"], words["dog"], captioner.end_id]
    expected = logits[0, subset].logsumexp(0) - logits[0, words["##s"]]
    objective = Smile(Smile.Options(first_token="shift"))
    total = objective(captioner, batch).total
    state, logits = captioner.start(memory)
    for label in (words["s"], words["dog"]):
        logits = captioner.step(state, torch.tensor([label]))
        follows = words["dog"] if label == words["s"] else captioner.end_id
        expected = expected + logits[0, subset].logsumexp(0) - logits[0, follows]
    torch.testing.assert_close(total, expected / 3, rtol=1e-5, atol=1e-5)
    assert not torch.isclose(total, losses.mean())


@pytest.mark.parametrize(("family", "expected"), [("blip", "##s"), ("vision_encoder_decoder", "s")])
def test_continuation_pieces_of_other_families(
    load: Callable[[str], TorchCaptioner], family: str, expected: str
) -> None:
    captioner = load(family)
    words = captioner.vocabulary()
    assert captioner.continuation(words["s"]) == words[expected]
    assert captioner.continuation(captioner.end_id) == captioner.end_id


@torch.no_grad()
def test_a_first_token_without_continuation_piece_stays(captioner: CompactCaptioner) -> None:
    batch = batch_of(captioner, [["dog on grass"]])
    shifted, none = (smile(captioner, batch, first_token=kind).total for kind in ("shift", "none"))
    torch.testing.assert_close(shifted, none)


@torch.no_grad()
def test_shifting_leaves_the_likelihood_part_as_it_is(captioner: CompactCaptioner) -> None:
    batch = batch_of(captioner, [["s dog"]])
    plain = Mle(Mle.Options())(captioner, batch).total
    torch.testing.assert_close(smile(captioner, batch, first_token="shift", mle_weight=0.5).parts["mle"], plain)


@torch.no_grad()
def test_random_subsets_hold_the_label_and_ten_words_drawn_anew(captioner: CompactCaptioner) -> None:
    batch = batch_of(captioner)
    objective = Smile(Smile.Options(subset="random"))
    words, valid = objective._subset(captioner, batch.captions.targets)
    assert words.shape == (len(batch.captions.targets.labels), 11)
    assert torch.equal(words[:, 0], batch.captions.targets.labels)
    assert valid[:, 0].all()
    for row, counts in zip(words.tolist(), valid.tolist(), strict=True):
        assert sorted(word for word, counted in zip(row, counts, strict=True) if counted) == sorted(set(row))
    assert len({tuple(row) for row in words[:, 1:].tolist()}) == len(words)
    totals = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        totals.append(float(objective(captioner, batch).total))
    assert totals[0] == totals[1] != totals[2]


@torch.no_grad()
def test_reversed_subset_of_a_captioner(captioner: CompactCaptioner) -> None:
    """All of the vocabulary but the caption's other tokens."""
    batch = batch_of(captioner, [["a dog"]])
    losses = token_losses(captioner, batch, subset="reverse", first_token="none")
    forced = captioner.forward_teacher(
        captioner.encode_from_stem(batch.features),
        batch.captions.input_ids,
        torch.ones_like(batch.captions.input_ids),
        at=batch.captions.is_target,
    )
    labels = batch.captions.targets.labels.tolist()
    assert forced.logits is not None
    for logits, label, loss in zip(forced.logits, labels, losses, strict=True):
        rivals = [token for token in range(captioner.vocab_size) if token == label or token not in labels]
        torch.testing.assert_close(loss, logits[rivals].logsumexp(0) - logits[label])
