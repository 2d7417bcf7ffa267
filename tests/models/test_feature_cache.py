"""Pictures of a moment ago."""

import torch

from models.feature_cache import FeatureCache, KnownPicture


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
