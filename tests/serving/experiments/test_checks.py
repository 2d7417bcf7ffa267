"""Arms that the served models cannot be."""

from typing import Any

import pytest

from models.errors import ExperimentError
from serving.args import AppArgs
from serving.experiments.checks import check_arms
from serving.experiments.definition import Arm, Experiment
from serving.served_models import ServedModels

MODELS = ServedModels.from_args(AppArgs(models=("fake",)))


def tried(**arm: Any) -> None:
    check_arms([Experiment(name="tone", arms=(Arm(label="a"), Arm(label="b", **arm)))], MODELS)


def test_arms_that_can_be() -> None:
    tried(model="fake", decode={"name": "greedy"})


@pytest.mark.parametrize(
    ("arm", "told"),
    [
        ({"model": "absent"}, "no model 'absent' is served here; there are: fake"),
        ({"descriptiveness": 0.5}, "descriptiveness: model 'fake' has no spectrum"),
        ({"mix": {"smile": 1}}, "mix: model 'fake' has no directions"),
    ],
)
def test_arms_that_cannot(arm: dict[str, Any], told: str) -> None:
    with pytest.raises(ExperimentError, match=f"experiment 'tone', arm 'b': {told}"):
        tried(**arm)
