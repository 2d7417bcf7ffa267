"""Growth is told apart from noise."""

import random

import pytest

from tests.serving.processes import growth


def test_level_noise_and_outliers_are_no_growth() -> None:
    chance = random.Random(0)
    values = [100 + chance.uniform(-1, 1) for _ in range(24)]
    values[12] = 300
    assert abs(growth(values)) < 0.01


def test_a_leak_is_found_whatever_the_first_quarter_did() -> None:
    assert growth([50.0] * 6 + [100 + number for number in range(18)]) == pytest.approx(0.17)
    assert growth([200.0] * 6 + [100.0] * 18) == 0


def test_a_process_that_gives_memory_back_does_not_grow() -> None:
    assert growth([100.0 - number for number in range(24)]) < 0
