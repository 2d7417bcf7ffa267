"""How small a JPEG may be decoded, and what stays as it is where it is decoded smaller."""

from typing import Any

import pytest
from PIL import Image

from models.drafting import draft_px
from models.errors import ImageError
from models.images import ImageLimits, load_image
from tests.support import encoded


def test_twice_the_largest_of_what_the_models_see() -> None:
    assert draft_px(224) == 448
    assert draft_px(224, 260) == 520
    assert draft_px(224, None) is None  # one of them needs pictures in full
    assert draft_px() is None


def _smooth(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    """Soft colours, of which a coarser picture loses nothing."""
    small = Image.new("RGB", (4, 3))
    small.putdata([((37 * n) % 256, (91 * n) % 256, (53 * n) % 256) for n in range(12)])
    return small.resize(size, Image.Resampling.BICUBIC).convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_draft_looks_like_the_picture(mode: str, progressive: bool) -> None:
    jpeg = encoded(_smooth((800, 600), mode), "JPEG", quality=95, progressive=progressive)
    full, draft = load_image(jpeg), load_image(jpeg, draft_px=150)
    assert draft.image.size == (200, 150)
    assert (draft.size, draft.format, draft.notes, draft.image.mode) == (full.size, full.format, full.notes, "RGB")
    small = full.image.resize((200, 150), Image.Resampling.BOX)
    assert max(abs(a - b) for a, b in zip(small.tobytes(), draft.image.tobytes(), strict=True)) <= 12


@pytest.mark.parametrize("size", [(899, 2000), (448, 448), (1, 5000), (8, 8)])
def test_what_is_not_large_on_both_sides_is_opened_as_ever(size: tuple[int, int]) -> None:
    jpeg = encoded(_smooth(size), "JPEG")
    full, draft = load_image(jpeg), load_image(jpeg, draft_px=450)
    assert draft.image.size == size and draft.image.tobytes() == full.image.tobytes()


def test_limits_are_those_of_the_picture_and_not_of_its_draft() -> None:
    jpeg = encoded(_smooth((800, 600)), "JPEG")
    for limits, code in ((ImageLimits(max_pixels=479_999), "too_large"), (ImageLimits(min_side_px=601), "too_small")):
        with pytest.raises(ImageError) as caught:
            load_image(jpeg, limits, draft_px=75)
        assert caught.value.code == code
    assert load_image(jpeg, ImageLimits(max_pixels=480_000), draft_px=75).image.size == (100, 75)
    assert load_image(jpeg, ImageLimits(min_side_px=600), draft_px=75).image.size == (100, 75)


def _outcome(data: bytes, **options: Any) -> str:
    try:
        return str(load_image(data, **options).size)
    except ImageError as error:
        return f"{error.code}: {error.detail}"


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_is_cut_short_is_told_alike(progressive: bool) -> None:
    jpeg = encoded(_smooth((640, 480)), "JPEG", quality=90, progressive=progressive)
    found = {}
    for cut in [*range(0, len(jpeg), len(jpeg) // 40), *range(len(jpeg) - 12, len(jpeg) + 1)]:
        found[cut] = _outcome(jpeg[:cut])
        assert _outcome(jpeg[:cut], draft_px=60) == found[cut]
    assert sum(outcome.startswith("truncated") for outcome in found.values()) > 30


def test_damage_is_told_alike() -> None:
    jpeg = encoded(_smooth((640, 480)), "JPEG", quality=90)
    for place in range(200, len(jpeg) - 8, len(jpeg) // 50):
        damaged = jpeg[:place] + b"\xff\xd9\x00\xff" + jpeg[place + 4 :]
        assert _outcome(damaged, draft_px=60) == _outcome(damaged)
