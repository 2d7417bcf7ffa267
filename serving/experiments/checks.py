"""Whether the served models can be what the arms ask for: seen at the start, not when the first user comes."""

from collections.abc import Iterable

from models.errors import ExperimentError, LimnerError
from serving.experiments.definition import Arm, Experiment
from serving.points import point_of
from serving.schemas import CaptionOptions
from serving.served_models import ServedModels


def check_arms(experiments: Iterable[Experiment], models: ServedModels) -> None:
    """Nothing, where every arm can caption.

    Raises:
        ExperimentError: ``bad_experiments``, naming experiment and arm.
    """
    for experiment in experiments:
        for arm in experiment.arms:
            _check_arm(experiment, arm, models)


def _check_arm(experiment: Experiment, arm: Arm, models: ServedModels) -> None:
    asked = CaptionOptions(descriptiveness=arm.descriptiveness, mix=arm.mix)
    try:
        model = models.resolve(arm.model)
        point_of(model, models.cards[model], asked)
    except LimnerError as error:
        detail = f"experiment {experiment.name!r}, arm {arm.label!r}: {error.detail}"
        raise ExperimentError("bad_experiments", detail) from None
