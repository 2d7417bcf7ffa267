"""UNKT: golden values, exact log(1 - p), the schedule of lambda, terms, targets, attention, the teacher."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.families.compact import CompactCaptioner
from models.interfaces import TeacherForced
from tests.training.objectives.support import UNEQUAL, batch_of, train
from training.objectives.interface import Batch, Loss, Resources, teacher_force
from training.objectives.mle import Mle
from training.objectives.unkt import Unkt, attention_logs, reversed_kl, soft_unlikelihood

TEACHER = torch.tensor([[0.5, 0.3, 0.2]])
STUDENT = torch.tensor([[0.7, 0.2, 0.1]])


# --- the terms ------------------------------------------------------------------------------------------------------


def test_golden_unlikelihood() -> None:
    assert float(soft_unlikelihood(TEACHER, STUDENT.log())) == pytest.approx(0.690002, abs=1e-6)
    by_hand = -(0.5 * math.log(0.3) + 0.3 * math.log(0.8) + 0.2 * math.log(0.9))
    assert float(soft_unlikelihood(TEACHER, STUDENT.log())) == pytest.approx(by_hand, abs=1e-6)


def test_unlikelihood_is_a_mean_over_targets() -> None:
    weights, logits = torch.cat([TEACHER, STUDENT]), torch.cat([STUDENT, TEACHER]).log()
    ways = [soft_unlikelihood(TEACHER, STUDENT.log()), soft_unlikelihood(STUDENT, TEACHER.log())]
    torch.testing.assert_close(soft_unlikelihood(weights, logits), torch.stack(ways).mean())


def test_unlikelihood_is_exact_where_p_is_1_in_floating_point() -> None:
    logits = torch.tensor([[30.0, 0.0, 0.0]], requires_grad=True)
    assert float(logits.detach().softmax(-1)[0, 0]) == 1.0
    loss = soft_unlikelihood(torch.tensor([[1.0, 0.0, 0.0]]), logits)
    assert float(loss.detach()) == pytest.approx(30 - math.log(2), rel=1e-6)
    loss.backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor([[1.0, -0.5, -0.5]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_unlikelihood_of_large_logits_is_finite_in_half_precision(dtype: torch.dtype) -> None:
    logits = torch.tensor([[60000.0, 0.0, -60000.0]], dtype=dtype, requires_grad=True)
    loss = soft_unlikelihood(TEACHER, logits)
    loss.backward()
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss.detach())
    assert logits.grad is not None and torch.isfinite(logits.grad).all()


def test_unlikelihood_equals_its_definition_in_double_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(20, 9, generator=generator).softmax(-1)
    logits = 3 * torch.randn(20, 9, generator=generator)
    slow = -(weights.double() * torch.log(1 - logits.double().softmax(-1))).sum(-1).mean()
    assert float(soft_unlikelihood(weights, logits)) == pytest.approx(float(slow), rel=1e-5)


def test_golden_divergence_is_that_of_the_student_from_the_teacher() -> None:
    assert float(reversed_kl(TEACHER.log(), STUDENT.log())) == pytest.approx(0.912075, abs=1e-6)
    assert -math.log(float(reversed_kl(TEACHER.log(), STUDENT.log()))) == pytest.approx(0.092033, abs=1e-6)
    backwards = float((STUDENT * (STUDENT / TEACHER).log()).sum())
    assert float(reversed_kl(STUDENT.log(), TEACHER.log())) == pytest.approx(math.exp(-backwards), abs=1e-6)
    assert backwards != pytest.approx(0.092033, abs=1e-3)


def test_divergence_is_a_mean_over_rows_and_1_where_both_agree() -> None:
    teacher = torch.stack([TEACHER, STUDENT]).log()  # (2, 1, 3)
    student = torch.stack([STUDENT, STUDENT]).log()
    assert float(reversed_kl(teacher, student)) == pytest.approx((0.912075 + 1) / 2, abs=1e-6)


def test_forbidden_attention_adds_nothing() -> None:
    """A causal row: zeros after the third place, on both sides."""
    padded = [torch.nn.functional.pad(weights, (0, 4)).requires_grad_() for weights in (TEACHER, STUDENT)]
    value = reversed_kl(*attention_logs(*padded))
    assert float(value.detach()) == pytest.approx(0.912075, abs=1e-6)
    value.backward()
    grad = padded[1].grad
    assert grad is not None and torch.isfinite(grad).all()
    assert not grad[:, 3:].any()


def test_attention_that_dropout_took_away_adds_nothing() -> None:
    """Inverted dropout of a half: the third place is gone and the others are twice as large."""
    dropped = STUDENT.clone() * 2
    dropped[:, 2] = 0
    teacher, student = torch.tensor([0.5, 0.3]) / 0.8, torch.tensor([0.7, 0.2]) / 0.9
    expected = math.exp(-float((teacher * (teacher / student).log()).sum()))
    assert float(reversed_kl(*attention_logs(TEACHER, dropped))) == pytest.approx(expected, abs=1e-6)
    nothing = torch.zeros_like(STUDENT).requires_grad_()
    value = reversed_kl(*attention_logs(TEACHER, nothing))
    value.backward()
    assert float(value.detach()) == 1.0
    assert nothing.grad is not None and not nothing.grad.any()


# --- the schedule of lambda -----------------------------------------------------------------------------------------


def weights(resources: Resources, steps: list[int], **options: Any) -> list[float]:
    """Lambda at some steps of a run of 9 epochs of 10 steps."""
    objective = Unkt(Unkt.Options(teacher="t", **options), resources)
    batch = Batch(torch.zeros(0), torch.zeros(0), None, steps=90, steps_per_epoch=10)  # type: ignore[arg-type]
    return [objective.weight(replace(batch, step=step)) for step in steps]


def test_lambda_rises_over_five_epochs_and_falls_as_the_paper_prints_it(resources: Resources) -> None:
    assert weights(resources, [0, 1, 25, 49]) == pytest.approx([0, 0.02, 0.5, 0.98])
    assert weights(resources, [50, 60, 70, 80, 90]) == pytest.approx([1, 0.962, 0.854, 0.691, 0.5], abs=5e-4)


def test_lambda_falls_to_zero_as_the_papers_text_says(resources: Resources) -> None:
    assert weights(resources, [25, 50, 70, 90], schedule="cosine") == pytest.approx([0.5, 1, 0.5, 0])


def test_fixed_lambda(resources: Resources) -> None:
    assert weights(resources, [0, 40, 90], schedule="fixed", fixed_lambda=0.3) == [0.3] * 3


def test_rise_of_another_length(resources: Resources) -> None:
    assert weights(resources, [0, 90], rise_epochs=0) == pytest.approx([1, 0.5])
    assert weights(resources, [5, 10], rise_epochs=1) == pytest.approx([0.5, 1])
    # In a run that is shorter than the rise lambda still comes from 0 and nears 1.
    assert weights(resources, [0, 45, 89], rise_epochs=50) == pytest.approx([0, 0.5, 89 / 90])


# --- the loss of a captioner ----------------------------------------------------------------------------------------


def unkt(captioner: CompactCaptioner, resources: Resources, batch: Batch, **options: Any) -> Loss:
    return Unkt(Unkt.Options(teacher="t", **{"schedule": "fixed", **options}), resources)(captioner, batch)


def forced(captioner: CompactCaptioner, batch: Batch) -> TeacherForced:
    memory = captioner.encode_from_stem(batch.features)
    return teacher_force(captioner, memory, batch.captions, output_hidden_states=True, output_attentions=True)


def slow_terms(teacher: TeacherForced, student: TeacherForced, batch: Batch) -> dict[str, float]:
    """The three terms in plain loops, from their formulas."""
    p, q = (one.logits.double().softmax(-1) for one in (teacher, student) if one.logits is not None)
    places = batch.captions.is_target.nonzero().tolist()
    hidden, attention = 0.0, 0.0
    for ours, theirs in zip(teacher.hidden_states or (), student.hidden_states or (), strict=True):
        rows = [(ours[r, t].softmax(-1), theirs[r, t].softmax(-1)) for r, t in places]
        hidden += sum(divergence(a, b) for a, b in rows) / len(rows)
    for name in ("self_attentions", "cross_attentions"):
        for ours, theirs in zip(getattr(teacher, name), getattr(student, name), strict=True):
            rows = [(ours[r, h, t], theirs[r, h, t]) for r, t in places for h in range(ours.shape[1])]
            attention += sum(divergence(a, b) for a, b in rows) / len(rows)
    return {"prediction": float(-(p * (1 - q).log()).sum(-1).mean()), "hidden": hidden, "attention": attention}


def divergence(p: Tensor, q: Tensor) -> float:
    return math.exp(-sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True) if a > 0))


@torch.no_grad()
def test_every_term_equals_its_slow_twin(captioner: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(captioner)
    assert isinstance(resources.teacher, CompactCaptioner)
    expected = slow_terms(forced(resources.teacher, batch), forced(captioner, batch), batch)
    loss = unkt(captioner, resources, batch, fixed_lambda=0.25)
    assert {name: float(loss.parts[name]) for name in expected} == pytest.approx(expected, rel=1e-4)
    mle = Mle(Mle.Options())(captioner, batch).total
    torch.testing.assert_close(loss.parts["mle"], mle)
    assert float(loss.parts["lambda"]) == 0.25
    assert float(loss.total) == pytest.approx(0.75 * float(mle) + 0.25 * sum(expected.values()), rel=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("term", ["prediction", "hidden", "attention"])
def test_every_term_can_be_switched_off(captioner: CompactCaptioner, resources: Resources, term: str) -> None:
    batch = batch_of(captioner)
    all_parts = unkt(captioner, resources, batch, fixed_lambda=1).parts
    loss = unkt(captioner, resources, batch, fixed_lambda=1, **{f"use_{term}": False})
    assert set(loss.parts) == set(all_parts) - {term}
    rest = sum(part for name, part in loss.parts.items() if name not in ("mle", "lambda"))
    torch.testing.assert_close(loss.total, rest)


@torch.no_grad()
def test_without_any_term_the_likelihood_is_left(captioner: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(captioner)
    off = {"use_prediction": False, "use_hidden": False, "use_attention": False}
    loss = unkt(captioner, resources, batch, **off)
    torch.testing.assert_close(loss.total, 0.5 * Mle(Mle.Options())(captioner, batch).total)


@torch.no_grad()
def test_hard_targets_are_the_teachers_likeliest_tokens(captioner: CompactCaptioner, resources: Resources) -> None:
    batch = batch_of(captioner)
    assert isinstance(resources.teacher, CompactCaptioner)
    teacher, student = forced(resources.teacher, batch).logits, forced(captioner, batch).logits
    assert teacher is not None and student is not None
    best = teacher.argmax(-1)
    expected = -torch.log(1 - student.double().softmax(-1).gather(1, best[:, None])).mean()
    loss = unkt(captioner, resources, batch, target="hard").parts["prediction"]
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)


@torch.no_grad()
def test_a_student_equal_to_its_teacher_has_the_greatest_similarity(
    captioner: CompactCaptioner, resources: Resources
) -> None:
    loss = unkt(captioner, replace(resources, teacher=captioner), batch_of(captioner))
    layers = captioner.config.decoder_layers
    assert float(loss.parts["hidden"]) == pytest.approx(layers, abs=1e-5)
    assert float(loss.parts["attention"]) == pytest.approx(2 * layers, abs=1e-5)  # self and cross


def test_padding_makes_no_difference(captioner: CompactCaptioner, resources: Resources) -> None:
    """Packed rows of unequal length, and more padding behind all of them."""
    batch = batch_of(captioner, UNEQUAL)
    pad = {"input_ids": 0, "labels": -100, "segments": -1}
    longer = {
        name: torch.nn.functional.pad(getattr(batch.captions, name), (0, 2), value=value) for name, value in pad.items()
    }
    with torch.no_grad():
        plain = unkt(captioner, resources, batch).parts
        padded = unkt(captioner, resources, replace(batch, captions=replace(batch.captions, **longer))).parts
    torch.testing.assert_close(plain, padded, rtol=1e-5, atol=1e-6)


def test_twenty_steps_drive_the_student_from_the_teacher(
    trainee: CompactCaptioner, captioner: CompactCaptioner, resources: Resources
) -> None:
    """From a teacher that is nearly the student: similarity falls, and so does what both predict."""
    near = replace(resources, teacher=resources.reference)
    with torch.no_grad():
        for parameter in trainee.model.decoder.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    objective = Unkt(Unkt.Options(teacher="t", schedule="fixed", fixed_lambda=1.0), near)
    history = train(trainee, objective, batch_of(captioner))
    for name in ("hidden", "attention", "prediction"):
        assert history[-1][name] < 0.9 * history[0][name]
