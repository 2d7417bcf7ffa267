import pytest

from models.errors import RequestError, UnknownNameError
from models.mixing.coefficients import check_coefficients


def test_zeros_are_dropped_and_the_order_is_that_of_the_names() -> None:
    found = check_coefficients({"smile": 0.5, "b": 0, "a": -4, "c": -0.0}, ["smile", "c", "b", "a", "unused"])
    assert list(found.items()) == [("a", -4), ("smile", 0.5)]


def test_an_unknown_direction_is_refused_even_at_zero() -> None:
    with pytest.raises(UnknownNameError, match="no direction 'smlie'; there are: contrastive, smile"):
        check_coefficients({"smlie": 0}, ["smile", "contrastive"])
    with pytest.raises(UnknownNameError, match="there are: none"):
        check_coefficients({"smile": 1}, [])


@pytest.mark.parametrize("value", [4.01, -5, float("inf"), float("-inf"), float("nan"), 10**400])
def test_the_bound_is_named(value: float) -> None:
    with pytest.raises(RequestError, match="invalid_request: coefficient .* of direction 'smile' is not from -4 to 4"):
        check_coefficients({"smile": value}, ["smile"])
