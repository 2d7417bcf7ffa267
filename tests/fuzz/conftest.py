"""Hypothesis leaves nothing in the checkout."""

import tempfile
from collections.abc import Iterator

import pytest
from hypothesis.configuration import set_hypothesis_home_dir

from tests.fuzz.support import write_report


@pytest.fixture(scope="session", autouse=True)
def _no_traces() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        yield
    write_report()
