"""Pictures of a moment ago."""

import pytest
import torch

from models.caption_session import Ask, Manner
from models.catalog import DEFAULT_MODEL, find_captioner, list_models
from models.decoding import parse_decode
from models.families.fake import FakeCaptioner
from models.feature_cache import FeatureCache, KnownPicture, encoder_key
from models.pipeline import load_captioner, load_pipeline
from tests.models.families.tiny_models import images


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def picture(number: int, floats: int = 10) -> KnownPicture:
    return KnownPicture(torch.full((floats,), float(number)), (f"note {number}",))


def test_what_came_is_there_for_its_time() -> None:
    clock = Clock()
    cache = FeatureCache(10, 1000, clock)
    cache.put("a", picture(1))
    clock.now = 6
    cache.put("b", picture(2))
    assert cache.get("a") is not None and cache.bytes == 80
    clock.now = 10
    found = cache.get("b")
    assert cache.get("a") is None and found is not None and found.notes == ("note 2",)
    assert cache.bytes == 40
    clock.now = 100
    assert cache.get("b") is None and cache.bytes == 0


def test_the_oldest_make_room() -> None:
    cache = FeatureCache(10, 100, Clock())
    for number in range(4):
        cache.put(number, picture(number))
    assert [cache.get(number) is not None for number in range(4)] == [False, False, True, True]
    assert cache.bytes == 80


def test_what_does_not_fit_is_not_kept_and_drives_nobody_out() -> None:
    cache = FeatureCache(10, 100, Clock())
    cache.put("small", picture(1))
    cache.put("large", picture(2, floats=30))
    assert cache.get("large") is None and cache.get("small") is not None


def test_a_picture_that_is_there_stays_as_it_is() -> None:
    clock = Clock()
    cache = FeatureCache(10, 100, clock)
    cache.put("a", picture(1))
    clock.now = 5
    cache.put("a", picture(2))
    found = cache.get("a")
    assert found is not None and found.notes == ("note 1",) and cache.bytes == 40


def test_no_seconds_keep_nothing() -> None:
    cache = FeatureCache(0, 100, Clock())
    cache.put("a", picture(1))
    assert cache.get("a") is None and cache.bytes == 0


needs_bundled = pytest.mark.skipif(
    not {DEFAULT_MODEL, "concise"} <= {entry.id for entry in list_models()}, reason="the bundled models are not here"
)


@needs_bundled
def test_models_share_a_key_where_they_share_an_encoder() -> None:
    dial, concise = (load_captioner(find_captioner(name), device="cpu") for name in (DEFAULT_MODEL, "concise"))
    assert encoder_key(dial) == encoder_key(concise) is not None
    with torch.no_grad():
        next(iter(concise.model.vision.parameters())).add_(1e-3)  # type: ignore[attr-defined]
    assert encoder_key(dial) != encoder_key(concise)


def test_a_captioner_without_features_has_no_key() -> None:
    assert encoder_key(FakeCaptioner()) is None


@needs_bundled
def test_captions_from_known_features_are_the_same_and_nothing_is_encoded() -> None:
    pipeline = load_pipeline("concise", scorer=None, device="cpu")
    manner, pictures = Manner(parse_decode(None, pipeline.card.decoding)), images(5)
    expected = pipeline.caption(pictures, manner.strategy).captions
    kept: dict[int, torch.Tensor] = {}
    first = [
        Ask(manner, picture, remember=lambda features, number=number: kept.update({number: features}))  # type: ignore[misc]
        for number, picture in enumerate(pictures[:3])
    ]
    assert pipeline.caption_asks(first).captions == expected[:3]
    assert {number: features.untyped_storage().nbytes() for number, features in kept.items()} == dict.fromkeys(
        range(3), kept[0].nbytes
    )
    mixed = [
        *(Ask(manner, None, features=kept[number]) for number in range(3)),
        *(Ask(manner, picture) for picture in pictures[3:]),
    ]
    assert pipeline.caption_asks(mixed).captions == expected
    pipeline.captioner.encode_stem = None  # type: ignore[attr-defined]
    known = [Ask(manner, None, features=kept[number]) for number in (2, 0)]
    assert pipeline.caption_asks(known).captions == [expected[2], expected[0]]
