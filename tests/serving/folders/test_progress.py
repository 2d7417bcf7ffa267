"""What a run tells while it goes on."""

import io

import pytest

from serving.folders import progress
from serving.folders.progress import Bar
from serving.folders.summary import Summary
from tests.serving.folders.support import row


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    summary = Summary()
    with Bar(summary) as bar:
        bar.found(7)
        summary.add(row("a", "x"))
        summary.add(row("b", error="truncated"))
        bar.failed(row("[red]b", error="truncated"))
        bar.moved(2)
    shown = screen.getvalue()
    assert "2/7" in shown and "1 failed" in shown and "/s" in shown
    assert "error: truncated: '[red]b' failed" in shown  # no markup


def test_a_line_now_and_then_elsewhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    with Bar(Summary(captioned=3)) as bar:
        bar.moved(3)
        bar.found(10)
        bar.moved(2)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("3 pictures, ") and second.startswith("5 of 10 pictures, ")
    assert first.endswith("/s, 0 failed")


def test_failures_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    with Bar(Summary(), shown=False) as bar:
        bar.moved(3)
        bar.failed(row("a", error="empty"))
    assert capsys.readouterr().err == "error: empty: 'a' failed\n"
