"""Arguments of the application."""

import pytest
from pydantic import BaseModel, ValidationError

from serving.args import AppArgs, Limits

TWICE = [{"name": "tone", "arms": [{"label": "a"}, {"label": "b"}]}] * 2


def test_defaults_are_those_of_the_design() -> None:
    limits = AppArgs().limits
    assert (limits.max_body_bytes, limits.max_image_bytes) == (32 << 20, 20 << 20)
    assert (limits.max_image_px, limits.max_images, limits.max_rows) == (64_000_000, 32, 64)


def test_they_survive_json_as_a_config_file_has_it() -> None:
    args = AppArgs(models=("fake", "/a/folder"), scorer=None, limits=Limits(max_images=4), experiments=TWICE[:1])
    assert AppArgs.model_validate_json(args.model_dump_json()) == args


@pytest.mark.parametrize("kind", [AppArgs, Limits])
def test_every_field_is_described(kind: type[BaseModel]) -> None:
    assert [name for name, field in kind.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"models": []},
        {"model": "fake"},
        {"threads": 0},
        {"limits": {"max_images": 300}},
        {"target_pass_s": 0},
        {"limits": {"deadline_s": float("inf")}},
        {"experiments": TWICE},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AppArgs.model_validate(wrong)
