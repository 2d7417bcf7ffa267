"""The summary of recorded ratios: met, short, or not measured."""

from pathlib import Path

import pytest

from benchmarks import summary
from benchmarks.report import record


def test_each_target_is_compared_with_the_median_of_its_best_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ratios.jsonl"
    record(file, "beam 3, batch 1, fp32", [1.5, 1.7, 1.9])
    record(file, "beam 3, batch 1, bf16", [4.4])
    record(file, "beam 3, batch 1, int8", [4.6])
    record(file, "beam 3, batch 4, fp32", [1.4, 1.4, 9.0])
    record(file, "one client, more ms", [9.0, 10.5, 11.0])
    record(None, "diverse beam, 4 groups of 1, fp32", [9.0])
    summary.main([str(file)])
    lines = capsys.readouterr().out.splitlines()
    cells = {line.split(" | ")[0].strip("| "): [cell.strip(" |") for cell in line.split(" | ")[2:]] for line in lines}
    assert cells["BLIP-base, beam 3, 20 tokens, batch 1, fp32"] == [">= 1.6x", "1.70 (1.50 to 1.90)", "met"]
    assert cells["BLIP-base, beam 3, batch 4, fp32"] == [">= 1.5x", "1.40 (1.40 to 9.00)", "short"]
    assert cells["served, one client, p50"] == ["<= 10 ms more", "10.50 (9.00 to 11.00)", "short"]
    assert cells["diverse beam, 4 groups of 1"][-1] == "not measured"
    assert "4.60" in "\n".join(lines)
