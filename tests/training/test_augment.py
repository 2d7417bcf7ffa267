"""Augmented views."""

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from training.augment import ViewOptions, make_view

OPTIONS = ViewOptions()
UNCHANGED_COLOURS = ViewOptions(jitter=0)


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8))


def same(left: Image.Image, right: Image.Image) -> bool:
    return left.size == right.size and left.tobytes() == right.tobytes()


def test_the_first_two_views_are_the_picture_and_its_mirror_image(picture: Image.Image) -> None:
    assert same(make_view(picture, 0, OPTIONS, 0, "id"), picture)
    mirrored = make_view(picture, 1, OPTIONS, 0, "id")
    assert np.array_equal(np.asarray(mirrored), np.asarray(picture)[:, ::-1])


@pytest.mark.parametrize("number", [2, 3, 7])
def test_a_view_is_a_function_of_its_arguments(picture: Image.Image, number: int) -> None:
    view = make_view(picture, number, OPTIONS, 5, "id")
    assert same(view, make_view(picture, number, OPTIONS, 5, "id"))
    for other in (
        make_view(picture, number + 1, OPTIONS, 5, "id"),
        make_view(picture, number, OPTIONS, 6, "id"),
        make_view(picture, number, OPTIONS, 5, "another id"),
        make_view(picture, number, ViewOptions(crop_scale=(0.2, 0.3)), 5, "id"),
    ):
        assert not same(view, other)


def test_crops_keep_the_share_and_shape_that_the_options_say(picture: Image.Image) -> None:
    sizes = [make_view(picture, 2, UNCHANGED_COLOURS, seed, "id").size for seed in range(200)]
    shares = [width * height / (80 * 60) for width, height in sizes]
    ratios = [(width / 80) / (height / 60) for width, height in sizes]
    assert min(shares) > 0.5 and max(shares) <= 1
    assert min(ratios) > 0.75 and max(ratios) < 1.33
    assert max(shares) - min(shares) > 0.3


def test_a_crop_lies_within_the_picture(picture: Image.Image) -> None:
    whole = np.asarray(picture)
    view = np.asarray(make_view(picture, 2, UNCHANGED_COLOURS, 1, "id"))
    rows, columns = view.shape[:2]
    found = [
        (top, left)
        for top in range(61 - rows)
        for left in range(81 - columns)
        if np.array_equal(whole[top : top + rows, left : left + columns], view)
    ]
    assert len(found) == 1


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1)])
def test_the_smallest_pictures(size: tuple[int, int]) -> None:
    picture = Image.new("RGB", size, (10, 20, 30))
    for number in range(8):
        assert min(make_view(picture, number, OPTIONS, 0, "id").size) >= 1


@pytest.mark.parametrize("wrong", [{"count": 0}, {"jitter": 1}, {"mirror": True}])
def test_options_that_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ViewOptions.model_validate(wrong)
