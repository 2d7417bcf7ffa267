"""Retrieval specificity: four losses by hand, contrasts, the captions inside the loss, Gumbel noise, learning."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from models.decoding import parse_decode
from models.errors import DataError
from models.families.base import TorchCaptioner
from models.families.compact import CompactCaptioner
from tests.training.objectives.support import batch_of, decoder_parameters, train, with_gradient
from training.objectives.generation import generate
from training.objectives.interface import Batch, Resources
from training.objectives.retrieval import Retrieval, _gumbel, retrieval_losses

MAX_TOKENS = 8
TEXT = torch.tensor([[3.0, 4.0]])
OWN = torch.tensor([[1.0, 0.0]])
CONTRAST = torch.tensor([[0.0, 2.0]])


# --- the four losses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "expected"), [("dp", -3.0), ("cos", -0.6), ("cdp", 8.0 - 3.0), ("ccos", 0.8 - 0.6)])
def test_four_losses_worked_out_by_hand(loss: str, expected: float) -> None:
    assert float(retrieval_losses(TEXT, OWN, CONTRAST, loss)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("loss", ["cdp", "ccos"])
def test_hinges_are_zero_once_the_own_picture_wins(loss: str) -> None:
    text = TEXT.clone().requires_grad_()
    found = retrieval_losses(text, CONTRAST, OWN, loss)
    found.sum().backward()
    assert found.tolist() == [0.0]
    assert text.grad is not None and not text.grad.any()


@pytest.mark.parametrize("loss", ["dp", "cos", "cdp", "ccos"])
def test_projections_count_by_their_length_in_products_alone(loss: str) -> None:
    plain = retrieval_losses(TEXT, OWN, CONTRAST, loss)
    longer = retrieval_losses(2 * TEXT, 3 * OWN, 3 * CONTRAST, loss)
    torch.testing.assert_close(longer, 6 * plain if loss in ("dp", "cdp") else plain)


# --- contrasts ------------------------------------------------------------------------------------------------------


def retrieval(resources: Resources, **options: Any) -> Retrieval:
    return Retrieval(Retrieval.Options(**{"max_tokens": MAX_TOKENS, "similar_fraction": 0.5, **options}), resources)


def test_contrasts_come_from_the_most_similar_share_and_never_are_the_picture(resources: Resources) -> None:
    features = torch.randn(10, 16) * torch.linspace(0.1, 3, 10)[:, None]  # lengths do not count
    objective = retrieval(replace(resources, image_features=features), similar_fraction=0.25)  # 3 of 10
    unit = normalize(features, dim=-1)
    own = torch.arange(10)
    drawn = torch.stack([objective._contrasts(own, step) for step in range(60)])
    for picture in range(10):
        others = sorted(
            (number for number in range(10) if number != picture), key=lambda n: -float(unit[picture] @ unit[n])
        )
        assert set(drawn[:, picture].tolist()) == set(others[:3])
    assert torch.equal(objective._contrasts(own, 7), drawn[7])


def test_one_picture_alone_is_refused(resources: Resources) -> None:
    with pytest.raises(DataError, match="no_data.*two or more"):
        retrieval(replace(resources, image_features=torch.randn(1, 16)))


# --- the captions inside the loss -----------------------------------------------------------------------------------


def greedy(captioner: TorchCaptioner, batch: Batch, max_tokens: int = MAX_TOKENS) -> list[list[int]]:
    strategy = parse_decode({"name": "greedy", "options": {"max_tokens": max_tokens}})
    memory = captioner.encode_from_stem(batch.features)
    return [list(one.tokens) for (one,) in generate(captioner, memory, strategy, batch=len(batch.images))]


@torch.no_grad()
@pytest.mark.parametrize("loss", ["ccos", "cdp", "cos", "dp"])
@pytest.mark.parametrize("family", ["compact", "blip"])
def test_the_value_is_that_of_the_greedy_captions(
    load: Callable[[str], TorchCaptioner], resources: Resources, family: str, loss: str
) -> None:
    captioner = load(family)
    batch = replace(batch_of(captioner), step=4)
    scorer, features = resources.scorer, torch.randn(6, 16)
    assert scorer is not None
    objective = retrieval(replace(resources, reference=captioner, image_features=features), loss=loss)
    captions = greedy(captioner, batch)
    kept = [row for row, tokens in enumerate(captions) if tokens]
    texts = [captioner.detokenize(captions[row]) for row in kept]
    projected = scorer.model.encode_text(scorer.tokens(texts, prefix=False))
    own = batch.images[kept]
    expected = retrieval_losses(projected, features[own], features[objective._contrasts(own, 4)], loss)
    found = objective(captioner, batch)
    torch.testing.assert_close(found.total, expected.mean(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.parts["retrieval"], found.total)
    assert float(found.parts["tokens"]) == pytest.approx(sum(map(len, captions)) / 3)


@torch.no_grad()
@pytest.mark.parametrize("estimator", ["straight_through", "gumbel"])
def test_captions_are_the_likeliest_of_the_probabilities_that_teach(
    captioner: CompactCaptioner, resources: Resources, estimator: str
) -> None:
    """Also for Gumbel noise, which must be the same when the caption is written and when it is learned from."""
    objective = retrieval(resources, estimator=estimator, temperature=0.5)
    memory = captioner.encode_from_stem(batch_of(captioner).features)
    captions, noise = objective._write(captioner, memory)
    assert (noise is None) == (estimator == "straight_through")
    for tokens, p in zip(captions, objective._probabilities(captioner, memory, captions, noise), strict=True):
        assert p.shape == (len(tokens), captioner.vocab_size)
        torch.testing.assert_close(p.sum(-1), torch.ones(len(tokens)))
        assert p.argmax(-1).tolist() == tokens


@torch.no_grad()
def test_temperature_is_that_of_the_probabilities(captioner: CompactCaptioner, resources: Resources) -> None:
    memory = captioner.encode_from_stem(batch_of(captioner).features)
    plain, cold = (retrieval(resources, temperature=temperature) for temperature in (1.0, 0.5))
    captions, _ = plain._write(captioner, memory)
    for p, q in zip(*(each._probabilities(captioner, memory, captions, None) for each in (plain, cold)), strict=True):
        torch.testing.assert_close(normalize(p**2, p=1, dim=-1), q, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_gumbel_captions_are_samples(captioner: CompactCaptioner, resources: Resources) -> None:
    objective = retrieval(resources, estimator="gumbel")
    memory = captioner.encode_from_stem(batch_of(captioner).features)
    written = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        written.append(objective._write(captioner, memory)[0])
    assert written[0] == written[1] != written[2]
    logits = torch.tensor([0.0, 1.0, -1.0])
    drawn = (logits + _gumbel(logits.expand(20_000, 3))).argmax(-1)
    torch.testing.assert_close(drawn.bincount() / 20_000, logits.softmax(-1), rtol=0, atol=0.015)


def test_the_captioner_writes_without_dropout_and_learns_with_it(
    trainee: CompactCaptioner, resources: Resources
) -> None:
    expected = greedy(trainee, batch_of(trainee))
    for module in trainee.model.decoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    objective = retrieval(resources)
    memory = trainee.encode_from_stem(batch_of(trainee).features)
    captions, noise = objective._write(trainee, memory)
    assert captions == expected
    assert trainee.training
    first, second = (objective._probabilities(trainee, memory, captions, noise) for _ in range(2))
    assert not torch.equal(first[0], second[0])


@pytest.mark.parametrize("estimator", ["straight_through", "gumbel"])
@pytest.mark.parametrize("loss", ["ccos", "cdp", "cos", "dp"])
def test_the_gradient_reaches_every_parameter_of_the_decoder(
    trainee: CompactCaptioner, resources: Resources, loss: str, estimator: str
) -> None:
    apart = replace(resources, image_features=torch.randn(4, 16))
    objective = retrieval(apart, loss=loss, estimator=estimator)
    batch = batch_of(trainee)
    total = torch.zeros(())
    for step in range(4):  # a hinge can be zero at one step
        total = total + objective(trainee, replace(batch, step=step)).total
    total.backward()
    assert with_gradient(trainee) == decoder_parameters(trainee)


def silenced(captioner: CompactCaptioner) -> CompactCaptioner:
    """The same captioner, which ends every caption at once."""
    own = deepcopy(captioner)
    with torch.no_grad():
        own.model.final_norm.weight.mul_(1e-3)
        own.model.token_embedding.weight[own.end_id] *= 3
        own.model.final_norm.bias.copy_(10 * own.model.token_embedding.weight[own.end_id])
    return own.train()


def test_empty_captions_teach_nothing(captioner: CompactCaptioner, resources: Resources) -> None:
    silent = silenced(captioner)
    silent.train_encoder(False)
    batch = batch_of(silent)
    assert greedy(silent, batch) == [[], [], []]
    loss = retrieval(resources)(silent, batch)
    loss.total.backward()
    assert float(loss.total.detach()) == float(loss.parts["retrieval"]) == float(loss.parts["tokens"]) == 0.0
    assert with_gradient(silent) == set()


@pytest.mark.parametrize("family", ["compact", "blip", "vision_encoder_decoder"])
def test_an_empty_caption_beside_others_is_left_out(
    load: Callable[[str], TorchCaptioner], resources: Resources, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    captioner = load(family).train()
    batch = batch_of(captioner)
    objective = retrieval(replace(resources, reference=captioner), loss="dp")
    first, second = captioner.tokenize(["a dog", "the man"], 12)

    def loss(*captions: list[int]) -> Tensor:
        monkeypatch.setattr(objective, "_write", lambda *_: (list(captions), None))
        kept = torch.tensor([0, 2]) if len(captions) == 2 else batch.images
        return objective(captioner, replace(batch, images=kept, features=batch.features[kept])).total

    loss(first, [], second).backward()
    assert with_gradient(captioner)  # all of them finite
    captioner.eval()
    torch.testing.assert_close(loss(first, [], second), loss(first, second))


def test_needs() -> None:
    assert Retrieval.needs(Retrieval.Options()) == {"scorer", "reference"}


# --- learning -------------------------------------------------------------------------------------------------------


def margin(captioner: CompactCaptioner, resources: Resources, batch: Batch) -> float:
    """Mean over the pictures of the cosine of the greedy caption with the own picture, less that with the others."""
    captions = [captioner.detokenize(tokens) for tokens in greedy(captioner, batch)]
    assert resources.scorer is not None and resources.image_features is not None
    texts = resources.scorer.encode_texts(captions, prefix=False)
    cosines: Tensor = texts @ normalize(resources.image_features, dim=-1).T
    own = cosines.diagonal()
    return float((own - (cosines.sum(1) - own) / (len(own) - 1)).mean())


@pytest.mark.parametrize("loss", ["ccos", "cdp", "cos", "dp"])
def test_twenty_steps_bring_captions_nearer_to_their_own_picture(
    load: Callable[[str], TorchCaptioner], resources: Resources, loss: str
) -> None:
    """Pictures that look as different as they can, with the features of texts, so that captions can reach them."""
    captioner = load("compact").train()
    scorer = resources.scorer
    assert isinstance(captioner, CompactCaptioner) and scorer is not None
    with torch.no_grad():
        texts = ["a dog on grass", "the man in red t-shirt", "a child plays", "the child sits on a dog in the grass"]
        features = scorer.model.encode_text(scorer.tokens(texts, prefix=False))
    apart = replace(resources, image_features=features - features.mean(0))
    batch = batch_of(captioner, [["a dog"]] * 4)
    batch = replace(batch, features=torch.randn_like(batch.features))
    before = margin(captioner, apart, batch)
    objective = retrieval(apart, loss=loss, similar_fraction=1)
    train(captioner, objective, lambda step: replace(batch, step=step), rate=3e-3)
    assert margin(captioner, apart, batch) > before + 0.05
