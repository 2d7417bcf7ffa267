"""How large passes become for models of several speeds: times are worked out, never measured."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from serving.pass_times import PassKind, PassTimes

KIND = PassKind("a", str, 3)
MOST = 32


def sizes(times: PassTimes, seconds: Callable[[int], float], passes: int, kind: PassKind = KIND) -> list[int]:
    """Images of consecutive passes while more wait than fit."""
    made = []
    for _ in range(passes):
        made.append(times.room(kind))
        times.learn(kind, made[-1], seconds(made[-1]))
    return made


def linear(per_image_s: float) -> Callable[[int], float]:
    return lambda images: per_image_s * images


def test_a_fast_model_has_full_passes_after_one() -> None:
    assert sizes(PassTimes(1.0, MOST), linear(0.02), 4) == [4, 32, 32, 32]


def test_a_model_that_needs_a_second_for_one_image_gets_them_one_by_one() -> None:
    assert sizes(PassTimes(1.0, MOST), linear(1.0), 20) == [4, *[1] * 19]


@pytest.mark.parametrize(("per_image_s", "settled"), [(0.03, 32), (0.04, 16), (0.1, 8), (0.3, 2), (0.6, 1), (5.0, 1)])
def test_passes_settle_within_the_target(per_image_s: float, settled: int) -> None:
    made = sizes(PassTimes(1.0, MOST), linear(per_image_s), 63)
    assert made[12:] == [settled] * 51
    assert sum(size * per_image_s > max(1.0, 1.5 * per_image_s) for size in made) <= 4  # learning is short


@pytest.mark.parametrize("pass_s", [0.2, 1.2, 5.0])
def test_a_model_for_which_many_cost_as_little_as_one_grows_to_full_passes(pass_s: float) -> None:
    made = sizes(PassTimes(1.0, MOST), lambda _images: pass_s, 40)
    assert made[12:] == [32] * 28


def test_never_more_than_may_be() -> None:
    assert max(sizes(PassTimes(1.0, 24), linear(0.001), 200)) == 24
    assert sizes(PassTimes(1.0, 1), linear(9.0), 5) == [1] * 5


def test_a_slow_first_pass_is_made_good() -> None:
    times = PassTimes(1.0, MOST)
    times.learn(KIND, 1, 8.0)  # the warm-up
    assert sizes(times, linear(0.02), 8)[-1] == MOST


def test_a_slow_time_is_made_good() -> None:
    times = PassTimes(1.0, MOST)
    sizes(times, linear(0.02), 10)
    slow = sizes(times, linear(0.5), 10)
    assert slow[-1] == 2
    assert sizes(times, linear(0.02), 200)[-1] == MOST


def test_small_passes_of_a_quiet_time_teach_too() -> None:
    times = PassTimes(1.0, MOST)
    for _ in range(5):
        times.learn(KIND, 1, 0.05)
    assert times.room(KIND) == 16


def test_kinds_learn_apart_and_a_new_one_begins_as_slow_as_the_slowest_of_its_like() -> None:
    times = PassTimes(1.0, MOST)
    sizes(times, linear(0.01), 10)
    sizes(times, linear(2.0), 10, PassKind("a", str, 24))
    assert times.room(KIND) == MOST
    assert times.room(PassKind("a", str, 5)) <= 2
    assert times.room(PassKind("a", int, 3)) == times.room(PassKind("b", str, 3)) == 4


@dataclass
class Image:
    rows: int
    lane: str = "a"
    key: str = "k"


def test_who_fits_is_counted_in_images_and_in_rows_and_nobody_overtakes() -> None:
    times = PassTimes(1.0, 6, max_rows=20)
    sizes(times, linear(0.001), 10)

    def fitting(*rows: int, **beside: int) -> int:
        return len(times.fitting([Image(each) for each in rows], **beside))

    assert fitting(*[3] * 9) == 6
    assert fitting(12, 5, 4, 1) == 2  # the one of 4 does not fit, so the one of 1 waits as well
    assert fitting(100, 1) == 1  # alone, however wide
    assert fitting(1, 1, 1, images=4, rows=12) == 2
    assert fitting(9, 1, images=1, rows=12) == 0


def test_a_pass_of_images_of_different_width_is_of_the_kind_of_their_mean() -> None:
    times = PassTimes(1.0, MOST)
    sizes(times, linear(0.5), 10)  # of 3 rows an image: two at a time
    sizes(times, linear(0.01), 10, PassKind("a", str, 1))
    assert len(times.fitting([Image(1)] * 40)) == MOST
    assert len(times.fitting([Image(5), Image(1), Image(5), Image(1)])) == 2
    assert PassKind.of(Image(1), images=3, rows=7) == PassKind("a", str, 3)


def test_the_pace_is_that_of_the_last_passes() -> None:
    times = PassTimes(1.0, MOST)
    assert times.seconds_per_image is None
    times.learn(KIND, 4, 2.0)
    assert times.seconds_per_image == pytest.approx(0.5)
    for _ in range(60):
        times.learn(KIND, 10, 1.0)
    assert times.seconds_per_image == pytest.approx(0.1, rel=0.01)
