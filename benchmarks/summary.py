"""The ratios of several benchmarks against what they are to reach: ``python -m benchmarks.summary FILE``.

``FILE`` is what the benchmarks wrote with ``--record FILE``.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import hardware, markdown_table, say

HEADER = ("what", "against", "target", "measured (least to most)", "")


@dataclass(frozen=True)
class Target:
    """A bound on the median of the turns; of several rows the better one counts."""

    what: str
    against: str
    rows: tuple[str, ...]
    bound: float
    at_most: bool = False
    unit: str = "x"

    def line(self, measured: dict[str, list[float]]) -> tuple[str, ...]:
        """A line under ``HEADER``."""
        sign = "<=" if self.at_most else ">="
        begun = (self.what, self.against, f"{sign} {self.bound:g}{self.unit}")
        found = [measured[row] for row in self.rows if row in measured]
        if not found:
            return (*begun, "", "not measured")
        values = (min if self.at_most else max)(found, key=statistics.median)
        median = statistics.median(values)
        met = median <= self.bound if self.at_most else median >= self.bound
        spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
        return (*begun, f"{median:.2f}{spread}", "met" if met else "short")


def _served(row: str) -> tuple[str, str]:
    """By one captioner, and by one for each core."""
    return row, f"{row}, captioners"


_GENERATE = "transformers' generate, fp32"
_BARE = "the bare model in batches, from bytes"
TARGETS = (
    Target("BLIP-base, beam 3, 20 tokens, batch 1, fp32", _GENERATE, ("beam 3, batch 1, fp32",), 1.6),
    Target("the same, bf16 or int8", _GENERATE, ("beam 3, batch 1, bf16", "beam 3, batch 1, int8"), 4.5),
    Target("BLIP-base, beam 3, batch 4, fp32", _GENERATE + ", batch 4", ("beam 3, batch 4, fp32",), 1.5),
    Target("the same, bf16 or int8", _GENERATE + ", batch 4", ("beam 3, batch 4, bf16", "beam 3, batch 4, int8"), 4.5),
    Target("diverse beam, 4 groups of 1", "4 greedy runs", ("diverse beam, 4 groups of 1, fp32",), 2.5),
    Target("compact, beam 3, batch 32", "the same decoder under generate", ("compact, batch 32",), 2),
    Target("SMILE (lambda 0), loss and gradients", "masked full softmax", ("loss",), 5),
    Target("the same, memory saved", "masked full softmax", ("loss, memory",), 5),
    Target("training step, independent pairs", "no feature cache", ("step, independent pairs",), 5),
    Target("training step, 5 captions an image", "no feature cache", ("step, 5 captions an image",), 2),
    Target("served, compact, 32 clients, 1 image a request", _BARE, _served("1 image a request"), 0.75),
    Target("served, compact, 8 images a request", _BARE, _served("8 images a request"), 0.9),
    Target("served, BLIP-base", _BARE, ("BLIP-base served",), 0.95),
    Target(
        "served, one client, p50", "the bare model's", _served("one client, more ms"), 10, at_most=True, unit=" ms more"
    ),
    Target("BLIP-base, bf16, greedy, batch 64, a GPU", "transformers' generate, bf16", ("GPU, greedy, batch 64",), 8),
    Target("mixed traffic, 4 option sets", "harmonic mean of each alone", ("mixed",), 0.8),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.summary", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="what the benchmarks wrote with --record")
    lines = parser.parse_args(arguments).file.read_text(encoding="utf-8").splitlines()
    measured = {row["name"]: row["values"] for row in map(json.loads, lines)}
    say(f"## Summary\n\n- {hardware()}; medians of the turns\n")
    say(markdown_table(HEADER, [target.line(measured) for target in TARGETS]))


if __name__ == "__main__":
    main()
