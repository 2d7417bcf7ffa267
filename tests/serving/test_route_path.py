"""Paths under a prefix."""

import pytest

from serving.route_path import route_path


@pytest.mark.parametrize(
    ("path", "root", "found"),
    [("/v1/models", "", "/v1/models"), ("/limner/v1/models", "/limner", "/v1/models"), ("/limner", "/limner", "")],
)
def test_the_prefix_is_taken_off(path: str, root: str, found: str) -> None:
    assert route_path({"path": path, "root_path": root}) == found
    assert route_path({"path": path}) == path
