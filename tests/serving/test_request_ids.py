"""Which ids of clients are kept."""

import pytest

from serving.request_ids import usable_id


@pytest.mark.parametrize("given", ["a", "A.b_c:d+e/f=g-1", "0" * 128])
def test_plain_ones_are_kept(given: str) -> None:
    assert usable_id(given) == given


@pytest.mark.parametrize("given", ["", " a", "a b", "a\n", "\u00e9", "0" * 129, "<b>", "a\0", "\u0661"])
def test_any_other_is_replaced_by_one_that_is_kept(given: str) -> None:
    made = usable_id(given)
    assert made not in (given, usable_id(given))
    assert usable_id(made) == made
