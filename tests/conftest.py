"""What holds for every test: no model hub, few threads, reproducible random numbers."""

import os

import pytest

from tests.figures import figure, lines

__all__ = ["figure"]

os.environ["HF_HUB_OFFLINE"] = "1"  # before any test imports a hub client, which reads it once
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for a busy core cost more than they give


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Random weights are the same in every run and whatever ran before."""
    import torch  # deferred: the variables above must be set first

    torch.manual_seed(0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The figures that tests told of, in one place."""
    if measured := lines(terminalreporter):
        terminalreporter.section("figures")
        for line in measured:
            terminalreporter.write_line(line)
