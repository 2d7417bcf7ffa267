"""The table of objectives, and what every entry of it owes the trainer."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from models.clip_scorer import ClipScorer
from models.errors import RequestError, UnknownNameError
from models.families.base import TorchCaptioner
from tests.models.families.tiny_models import images
from tests.training.objectives.support import UNEQUAL, batch_of, decoder_parameters, with_gradient
from training.data import Example
from training.objectives import OBJECTIVES, choose_objective
from training.objectives.interface import Batch, Resources
from training.resources import frozen

REQUIRED: dict[str, dict[str, Any]] = {"unkt": {"teacher": "teacher"}}
"""Options without a default."""
NEGATIVES = (("a red shirt", "on grass", "a child"), ("the dog",), ("a man sits",))
FAMILIES = ("compact", "blip", "vision_encoder_decoder")
RUNS: dict[str, dict[str, Any]] = {
    "mle": {},
    "smile": {"mle_weight": 0.5},
    "unkt": {**REQUIRED["unkt"], "schedule": "fixed"},
    "contrastive": {},
    "retrieval": {"loss": "dp", "similar_fraction": 0.5, "max_tokens": 8},
    "scst": {"samples": 3, "max_tokens": 8},
}
"""Options with which no part of a loss is zero on a batch of three pictures."""


def test_every_objective_is_run_here() -> None:
    assert list(RUNS) == list(OBJECTIVES)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_has_defaults_and_says_what_it_needs(name: str) -> None:
    chosen = choose_objective(name, REQUIRED.get(name, {}))
    assert chosen.options == chosen.kind.Options(**REQUIRED.get(name, {}))
    assert chosen.needs <= {"reference", "teacher", "scorer"}
    for need in chosen.needs - {"reference"}:
        assert isinstance(getattr(chosen.options, need), str)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_unknown_options_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(RequestError, match=f"objective '{name}'.*lambda_.*options: "):
        choose_objective(name, {**REQUIRED.get(name, {}), "lambda_": 1})


def test_an_unknown_objective_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnknownNameError, match="'nle'.*mle"):
        choose_objective("nle", {})


def test_a_required_option_is_asked_for() -> None:
    with pytest.raises(RequestError, match="teacher: is required"):
        choose_objective("unkt", {})


@pytest.mark.parametrize(
    "options",
    [{"smoothing": 0.1}, {"label_smoothing": 1}, {"image_dropout": -0.1}, {"image_dropout": "often"}],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=next(iter(options))):
        choose_objective("mle", options)


# --- every objective on every family --------------------------------------------------------------------------------


def resources_for(captioner: TorchCaptioner, scorer: ClipScorer, examples: tuple[Example, ...]) -> Resources:
    teacher = deepcopy(captioner)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.mul_(0.9)
    features = scorer.project_images(images(len(UNEQUAL)))
    return Resources(examples, 0, frozen(deepcopy(captioner)), frozen(teacher), scorer, features)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> tuple[Example, ...]:
    folder = tmp_path_factory.mktemp("examples")
    return tuple(Example(str(number), folder / str(number), captions) for number, captions in enumerate(UNEQUAL))


@pytest.fixture(scope="module", params=FAMILIES)
def world(
    request: pytest.FixtureRequest,
    load: Callable[[str], TorchCaptioner],
    scorer: ClipScorer,
    examples: tuple[Example, ...],
) -> tuple[TorchCaptioner, Resources, Batch]:
    """A captioner, what objectives may need, and a batch: all of one family."""
    captioner = load(request.param)
    batch = batch_of(captioner, UNEQUAL, NEGATIVES)
    return captioner, resources_for(captioner, scorer, examples), replace(batch, step=3, steps=9, steps_per_epoch=3)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_one_step_teaches_the_decoder_and_nothing_that_is_frozen(
    name: str, world: tuple[TorchCaptioner, Resources, Batch]
) -> None:
    captioner, resources, batch = deepcopy(world[0]).train(), *world[1:]
    frozen_before = state_of(resources)
    torch.manual_seed(0)
    loss = choose_objective(name, RUNS[name]).build(resources)(captioner, batch)
    assert loss.total.shape == ()
    assert torch.isfinite(loss.total)
    assert loss.parts
    assert not any(part.requires_grad for part in loss.parts.values())
    assert all(part.shape == () and torch.isfinite(part) for part in loss.parts.values())
    loss.total.backward()
    # A bias of keys shifts all scores of a query alike: its gradient is zero up to rounding.
    keys = {parameter for parameter in decoder_parameters(captioner) if parameter.endswith("key.bias")}
    assert with_gradient(captioner) | keys >= decoder_parameters(captioner)
    assert captioner.training
    helpers = (resources.reference, resources.teacher)
    assert all(one is not None and not one.training for one in helpers)
    assert all(parameter.grad is None for one in helpers for parameter in one.parameters())  # type: ignore[union-attr]
    assert resources.scorer is not None
    assert all(parameter.grad is None for parameter in resources.scorer.model.parameters())
    assert all(torch.equal(before, after) for before, after in zip(frozen_before, state_of(resources), strict=True))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_equal_seeds_give_equal_losses(name: str, world: tuple[TorchCaptioner, Resources, Batch]) -> None:
    captioner, resources, batch = world
    objective = choose_objective(name, RUNS[name]).build(resources)
    losses = []
    for _ in range(2):
        torch.manual_seed(5)
        with torch.no_grad():
            losses.append(objective(captioner, batch).total)
    assert torch.equal(*losses)


def state_of(resources: Resources) -> list[torch.Tensor]:
    """Copies of the tensors of all helpers."""
    modules = (resources.reference, resources.teacher, resources.scorer and resources.scorer.model)
    return [tensor.clone() for module in modules if module is not None for tensor in module.state_dict().values()]
