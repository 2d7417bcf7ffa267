"""The table of objectives."""

import pytest

from models.errors import RequestError, UnknownNameError
from training.objectives import OBJECTIVES, build_objective


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_built_with_its_defaults(name: str) -> None:
    objective = build_objective(name, {})
    assert objective.Options().model_dump() == objective.options.model_dump()  # type: ignore[attr-defined]


def test_an_unknown_objective_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnknownNameError, match="'nle'.*mle"):
        build_objective("nle", {})


@pytest.mark.parametrize(
    "options",
    [{"smoothing": 0.1}, {"label_smoothing": 1}, {"image_dropout": -0.1}, {"image_dropout": "often"}],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=next(iter(options))):
        build_objective("mle", options)
