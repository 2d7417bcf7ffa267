"""Contrastive learning: golden value, gradients far out, gains, the reference and its refreshing, terms."""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.families.base import TorchCaptioner
from models.families.compact import CompactCaptioner
from tests.training.objectives.support import UNEQUAL, batch_of, train
from training.negatives import NegativeOptions
from training.objectives.contrastive import Contrastive, gain_loss, sequence_logprobs
from training.objectives.interface import Batch, Resources
from training.resources import frozen

MISMATCHED = (("a red shirt", "on grass", "a child"), ("the dog",), ("a man sits",))


# --- the loss of gains ----------------------------------------------------------------------------------------------


def test_golden_value() -> None:
    """G of the own caption is 1, of two mismatched ones -1 and 2."""
    positive = gain_loss(torch.tensor([1.0]), own=True)
    negative = gain_loss(torch.tensor([-1.0, 2.0]), own=False)
    assert float(positive) == pytest.approx(0.313262, abs=1e-6)
    assert float(negative) == pytest.approx((0.313262 + 2.126928) / 2, abs=1e-6)
    assert float(positive + negative) == pytest.approx(1.533357, abs=1e-6)


def test_without_any_gain_the_loss_is_two_ln_two_and_still_teaches() -> None:
    gains = torch.zeros(3, requires_grad=True)
    loss = gain_loss(gains, own=True) + gain_loss(gains, own=False)
    assert float(loss.detach()) == pytest.approx(2 * math.log(2))
    gain_loss(gains, own=True).backward()
    assert gains.grad is not None
    torch.testing.assert_close(gains.grad, torch.full((3,), -0.5 / 3))


@pytest.mark.parametrize(("own", "gain", "slope"), [(True, -40.0, -1.0), (False, 40.0, 1.0)])
def test_the_worst_captions_keep_their_gradient(own: bool, gain: float, slope: float) -> None:
    """Where sigmoid and logarithm one after the other have none left."""
    gains = torch.tensor([gain], requires_grad=True)
    loss = gain_loss(gains, own=own)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(40.0)
    assert gains.grad is not None
    assert float(gains.grad) == pytest.approx(slope)


@pytest.mark.parametrize("nu", [0.5, 1.0, 4.0])
def test_equal_to_the_posterior_of_the_paper(nu: float) -> None:
    """h = 1 / (1 + nu exp(-G)); the losses are -ln h and -ln(1 - h)."""
    gains = torch.tensor([-3.0, 0.0, 2.5], dtype=torch.float64)
    h = 1 / (1 + nu * torch.exp(-gains))
    torch.testing.assert_close(gain_loss(gains, own=True, nu=nu), -h.log().mean())
    torch.testing.assert_close(gain_loss(gains, own=False, nu=nu), -(1 - h).log().mean())


def test_no_captions_have_no_loss() -> None:
    assert float(gain_loss(torch.zeros(0), own=False)) == 0.0


# --- the log-probability of captions --------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("family", ["compact", "blip"])
def test_slow_twin_of_the_log_probability(load: Callable[[str], TorchCaptioner], family: str) -> None:
    """Summed over all tokens and the end, token by token through the decoder that generates captions."""
    captioner = load(family)
    batch = batch_of(captioner)
    memory = captioner.encode_from_stem(batch.features)
    expected = []
    for picture, captions in enumerate(UNEQUAL):
        for ids in (captioner.tokenize([caption], 12)[0] for caption in captions):
            state, logits = captioner.start(memory[picture : picture + 1])
            total = 0.0
            for token in [*ids, captioner.end_id]:
                total += float(logits.log_softmax(-1)[0, token])
                logits = captioner.step(state, torch.tensor([token]))
            expected.append(total)
    found = sequence_logprobs(captioner, memory, batch.captions)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(expected, rel=1e-4)


# --- the loss of a captioner ----------------------------------------------------------------------------------------


def contrastive(resources: Resources, **options: Any) -> Contrastive:
    return Contrastive(Contrastive.Options(**options), resources)


def logprobs(captioner: TorchCaptioner, batch: Batch) -> tuple[Tensor, Tensor]:
    assert batch.negatives is not None
    memory = captioner.encode_from_stem(batch.features)
    first, second = (sequence_logprobs(captioner, memory, rows) for rows in (batch.captions, batch.negatives))
    return first, second


@torch.no_grad()
def test_slow_twin_of_the_whole_objective(captioner: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(captioner, UNEQUAL, MISMATCHED)
    other = replace(resources, reference=resources.teacher)
    assert other.reference is not None
    own, negative = (
        ours - theirs for ours, theirs in zip(logprobs(captioner, batch), logprobs(other.reference, batch), strict=True)
    )
    loss = contrastive(other)(captioner, batch)
    h = [[1 / (1 + math.exp(-gain)) for gain in gains.tolist()] for gains in (own, negative)]
    expected = [-sum(map(math.log, h[0])) / 6, -sum(math.log(1 - each) for each in h[1]) / 5]
    assert float(loss.parts["positive"]) == pytest.approx(expected[0], rel=1e-3)
    assert float(loss.parts["negative"]) == pytest.approx(expected[1], rel=1e-3)
    assert float(loss.total) == pytest.approx(sum(expected), rel=1e-3)
    torch.testing.assert_close(loss.parts["positive_gain"], own.mean())
    torch.testing.assert_close(loss.parts["negative_gain"], negative.mean())


@torch.no_grad()
def test_nu_reaches_the_loss(captioner: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(captioner, UNEQUAL, MISMATCHED)  # the captioner is its own reference: G = 0 everywhere
    parts = contrastive(resources, nu=3)(captioner, batch).parts
    assert float(parts["positive"]) == pytest.approx(math.log(4), rel=1e-4)
    assert float(parts["negative"]) == pytest.approx(math.log(4 / 3), rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("term", ["positive", "negative"])
def test_one_term_alone(captioner: CompactCaptioner, resources: Resources, term: str) -> None:
    batch = batch_of(captioner, UNEQUAL, MISMATCHED)
    both, alone = (contrastive(resources, terms=terms)(captioner, batch) for terms in ("both", term))
    assert set(alone.parts) == {term, f"{term}_gain"}
    torch.testing.assert_close(alone.total, both.parts[term])


def test_what_is_drawn_and_needed() -> None:
    options = Contrastive.Options()
    assert Contrastive.needs(options) == {"reference"}
    assert Contrastive.negatives(options) == NegativeOptions(per_caption=5)
    hard = Contrastive.Options(K=3, hard_negatives=0.5)
    assert Contrastive.needs(hard) == {"reference", "scorer"}
    assert Contrastive.negatives(hard) == NegativeOptions(per_caption=3, hard_share=0.5)
    assert Contrastive.negatives(Contrastive.Options(terms="positive")) is None


@torch.no_grad()
def test_positive_captions_alone_need_no_others(captioner: CompactCaptioner, resources: Resources) -> None:
    assert set(contrastive(resources, terms="positive")(captioner, batch_of(captioner)).parts) == {
        "positive",
        "positive_gain",
    }


def test_the_reference_is_neither_trained_nor_put_in_train_mode(
    trainee: CompactCaptioner, resources: Resources
) -> None:
    assert resources.reference is not None
    before = {name: tensor.clone() for name, tensor in resources.reference.state_dict().items()}
    train(trainee, contrastive(resources), batch_of(trainee, UNEQUAL, MISMATCHED), steps=2)
    assert not resources.reference.training
    torch.testing.assert_close(dict(resources.reference.state_dict()), before, rtol=0, atol=0)


def test_the_reference_is_refreshed_every_so_many_steps(trainee: CompactCaptioner, resources: Resources) -> None:
    objective = contrastive(replace(resources, reference=frozen(deepcopy(trainee))), refresh_reference_every=3)
    batch = batch_of(trainee, UNEQUAL, MISMATCHED)
    history = train(trainee, objective, lambda step: replace(batch, step=step), steps=7)
    gains = [float(parts["positive_gain"]) for parts in history]
    fresh = [abs(gain) < 1e-4 for gain in gains]
    assert fresh == [True, False, False, True, False, False, True]
    assert not objective.reference.training
    assert not any(parameter.requires_grad for parameter in objective.reference.parameters())


def test_a_refreshed_reference_survives_a_restart(trainee: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(trainee, UNEQUAL, MISMATCHED)

    def fresh() -> Contrastive:
        return contrastive(replace(resources, reference=frozen(deepcopy(trainee))), refresh_reference_every=2)

    first, second = fresh(), fresh()
    train(trainee, first, lambda step: replace(batch, step=step), steps=4)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    torch.manual_seed(0)
    one = first(trainee, replace(batch, step=5)).total
    torch.manual_seed(0)
    assert torch.equal(second(trainee, replace(batch, step=5)).total, one)


def test_a_reference_that_stays_is_not_stored(resources: Resources) -> None:
    objective = contrastive(resources)
    assert objective.state_dict() == {}
    objective.load_state_dict({})


@torch.no_grad()
def test_pictures_without_mismatched_captions_are_no_nan(captioner: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(captioner, UNEQUAL, [[], [], []])
    loss = contrastive(resources)(captioner, batch)
    assert float(loss.parts["negative"]) == float(loss.parts["negative_gain"]) == 0.0
    torch.testing.assert_close(loss.total, loss.parts["positive"])


def test_twenty_steps_tell_own_captions_from_others(trainee: CompactCaptioner, resources: Resources) -> None:
    history = train(trainee, contrastive(resources), batch_of(trainee, UNEQUAL, MISMATCHED))
    margins = [float(parts["positive_gain"] - parts["negative_gain"]) for parts in history]
    assert abs(margins[0]) < 1e-3
    assert margins[-1] > 3
    assert history[-1]["total"] < 0.7 * history[0]["total"]
