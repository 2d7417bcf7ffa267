"""The benchmark of a GPU runs without one, and tells of what failed."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu_models import Setup
from tests.support import needs_gpu


def test_every_section_runs_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        status = gpu.main(["--device", "cpu", "--tiny", "--tokens", "8", "--record", str(tmp_path / "ratios")])
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert status == 0, out
    assert "All sections ran." in out
    assert all(f"### {name}: " in out for name in gpu.SECTIONS)
    assert "blip, greedy: 8 of 8 captions equal" in out
    assert '"GPU, beam 3, batch 2"' in (tmp_path / "ratios").read_text()


def test_a_section_that_fails_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        """Nothing."""
        raise RuntimeError("the card is on fire")

    monkeypatch.setitem(gpu.SECTIONS, "encoder", broken)
    setup = Setup(torch.device("cpu"), tiny=True, tokens=8, turns=1)
    assert gpu.run_sections(["encoder", "preprocessing"], setup, None) == ["encoder"]
    out = capsys.readouterr().out
    assert "the card is on fire" in out
    assert "| threads | images/s |" in out


@needs_gpu
def test_captions_on_a_gpu_equal_those_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    setup = Setup(torch.device("cuda"), tiny=True, tokens=8, turns=1)
    assert gpu.run_sections(["equality"], setup, None) == [], capsys.readouterr().out
