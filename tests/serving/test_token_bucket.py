"""A rate: bursts of a minute's worth, then as it fills."""

import pytest

from serving.token_bucket import TokenBucket


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_minute_worth_at_once_then_as_it_fills(clock: Clock) -> None:
    bucket = TokenBucket(30, clock)
    assert [bucket.spend(10) for _ in range(4)] == [None, None, None, 20]
    clock.now_s += 19
    assert bucket.spend(10) == 1
    clock.now_s += 1
    assert bucket.spend(10) is None
    clock.now_s += 3600  # idle time is not saved up
    assert [bucket.spend(30), bucket.spend(1)] == [None, 2]


def test_what_is_refused_costs_nothing(clock: Clock) -> None:
    bucket = TokenBucket(6, clock)
    assert bucket.spend(6) is None
    assert [bucket.spend(1) for _ in range(5)] == [10] * 5


def test_more_than_it_can_hold_is_owed(clock: Clock) -> None:
    bucket = TokenBucket(6, clock)
    assert bucket.spend(18) is None
    assert bucket.spend(1) == 130  # 12 owed and 1, a token every 10 s
    clock.now_s += 130
    assert bucket.spend(1) is None


def test_a_rate_below_one_a_minute(clock: Clock) -> None:
    bucket = TokenBucket(0.5, clock)
    assert bucket.spend(1) is None
    assert bucket.spend(1) == 120  # 0.5 owed, then full
