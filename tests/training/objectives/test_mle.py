"""Maximum likelihood: hand-worked and given values, who gets a gradient, packing, image dropout, learning."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.families.compact import CompactCaptioner
from tests.support import CASES
from tests.training.conftest import TinyData, collate
from training.batches import Item
from training.objectives.interface import IGNORE, Batch
from training.objectives.mle import Mle, token_cross_entropy

GIVEN: dict[str, Any] = json.loads((CASES / "loss.json").read_text(encoding="utf-8"))
LOGITS = torch.tensor(GIVEN["logits"])
GIVEN_CASES: dict[str, Any] = {case["name"]: case for case in GIVEN["cases"]}


def given_loss(name: str, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Loss of a given case, its gradient checked to be finite."""
    labels = torch.tensor(GIVEN_CASES[name]["labels"])
    if name == "pad_is_zero_unmasked":  # the mask is ours to apply: the labels of padding become IGNORE
        labels[3:] = IGNORE
    logits = (LOGITS * scale).to(dtype).requires_grad_()
    loss = token_cross_entropy(logits, labels)
    loss.backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
    assert not logits.grad[labels == IGNORE].any()
    return loss.detach()


# --- the loss of logits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, case in GIVEN_CASES.items() if case.get("mle") is not None])
def test_given_values(name: str) -> None:
    assert float(given_loss(name)) == pytest.approx(GIVEN_CASES[name]["mle"], abs=2e-6)


def test_without_any_target_the_loss_and_its_gradient_are_zero() -> None:
    assert float(given_loss("all_masked")) == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_logits_give_a_finite_loss_in_fp32(dtype: torch.dtype) -> None:
    loss = given_loss("large_logits", GIVEN_CASES["large_logits"]["scale"], dtype)
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)


def test_a_real_token_with_the_id_of_padding_is_a_target() -> None:
    logits = torch.tensor([[0.0, math.log(3)]])
    assert float(token_cross_entropy(logits, torch.tensor([0]))) == pytest.approx(math.log(4))


def test_smoothing_worked_out_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(2), math.log(5)], [9.0, 9.0, 9.0]]])  # probabilities 1/8, 2/8, 5/8
    labels = torch.tensor([[2, IGNORE]])
    plain, uniform = math.log(8 / 5), (math.log(8) + math.log(4) + math.log(8 / 5)) / 3
    assert float(token_cross_entropy(logits, labels, 0.3)) == pytest.approx(0.7 * plain + 0.3 * uniform)


# --- the loss of a captioner ----------------------------------------------------------------------------------------


def mle(captioner: CompactCaptioner, batch: Batch, **options: float) -> Tensor:
    loss = Mle(Mle.Options(**options))(captioner, batch)
    assert list(loss.parts) == ["mle"]
    assert not loss.parts["mle"].requires_grad
    return loss.total


def with_gradient(captioner: CompactCaptioner) -> set[str]:
    """Names of the parameters whose gradient is not zero."""
    return {name for name, p in captioner.model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}


def test_packed_rows_give_the_loss_of_separate_captions(captioner: CompactCaptioner, data: TinyData) -> None:
    items = [data.items[(0, index)] for index in range(4)]
    alone = [collate([Item(item.index, item.features, [ids])]) for item in items for ids in item.captions]
    counts = [int(each.captions.is_target.sum()) for each in alone]
    with torch.no_grad():
        separate = [float(mle(captioner, each)) for each in alone]
        packed = float(mle(captioner, collate(items)))
    mean = sum(loss * count for loss, count in zip(separate, counts, strict=True)) / sum(counts)
    assert packed == pytest.approx(mean, rel=1e-5)


def test_a_slow_twin_gives_the_same_loss(captioner: CompactCaptioner, data: TinyData) -> None:
    """Token by token through the decoder that generates captions."""
    item = data.items[(0, 3)]
    total, count = 0.0, 0
    with torch.no_grad():
        for ids in item.captions:
            state, logits = captioner.start(captioner.encode_from_stem(item.features[None]))
            for token in ids[1:]:
                total -= float(logits.log_softmax(-1)[0, token])
                count += 1
                logits = captioner.step(state, torch.tensor([token]))
        assert float(mle(captioner, collate([item]))) == pytest.approx(total / count, rel=1e-5)


def test_decoder_and_the_top_of_the_encoder_learn_but_never_its_frozen_half(
    trainee: CompactCaptioner, batch: Batch
) -> None:
    mle(trainee, batch).backward()
    moved = with_gradient(trainee)
    expected = {name for name, _ in trainee.model.named_parameters() if not name.startswith("vision.stem.")}
    assert moved == expected - {"null_memory"}


def test_only_image_dropout_teaches_the_null_memory(trainee: CompactCaptioner, batch: Batch) -> None:
    mle(trainee, batch, image_dropout=1.0).backward()
    moved = with_gradient(trainee)
    assert "null_memory" in moved
    assert not any(name.startswith(("vision.", "project.", "encoder.")) for name in moved)


def test_image_dropout_drops_whole_pictures_by_the_seed(trainee: CompactCaptioner, batch: Batch) -> None:
    def loss(seed: int, share: float = 0.5) -> float:
        torch.manual_seed(seed)
        with torch.no_grad():
            return float(mle(trainee, batch, image_dropout=share))

    assert loss(1) == loss(1)
    assert len({loss(seed) for seed in range(8)}) > 2
    # Each picture is seen or not: with all of them dropped the picture makes no difference.
    other = replace(batch, features=batch.features.flip(0))
    with torch.no_grad():
        unseen = [float(mle(trainee, each, image_dropout=1.0)) for each in (batch, other)]
    assert unseen[0] == unseen[1] == loss(0, share=1.0)


def test_validation_measures_the_plain_likelihood(captioner: CompactCaptioner, batch: Batch) -> None:
    with torch.no_grad():
        plain = mle(captioner, batch)
        assert torch.equal(mle(captioner, batch, label_smoothing=0.3, image_dropout=1.0), plain)


def test_twenty_steps_lower_the_loss(trainee: CompactCaptioner, batch: Batch) -> None:
    optimizer = torch.optim.AdamW([p for p in trainee.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(20):
        loss = mle(trainee, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
