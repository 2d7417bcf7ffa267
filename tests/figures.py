"""Figures that a test measured: one line each at the end of the run, so that a page can name the command."""

import pytest

FIGURE = "figure"


class Figures:
    """Keeps what one test measured."""

    def __init__(self, node: pytest.Item) -> None:
        self._node = node

    def __call__(self, name: str, value: str) -> None:
        """Tell of a figure, with its unit."""
        self._node.user_properties.append((FIGURE, f"{name}: {value}"))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figures:
    """Tells of a figure: ``figure("soak, ingress memory", "+0.4 %")``."""
    return Figures(request.node)


def lines(terminal: pytest.TerminalReporter) -> list[str]:
    """Of all tests that ran."""
    reports = [report for outcome in ("passed", "failed") for report in terminal.stats.get(outcome, [])]
    return [
        f"{report.nodeid.rpartition('::')[2]}: {text}"
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == FIGURE and report.when == "call"
    ]
