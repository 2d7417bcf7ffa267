"""What benchmarks print and keep: where they ran, percentiles, Markdown tables, ratios for the summary."""

import argparse
import json
import math
import platform
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from models.cpus import usable_cores


def hardware() -> str:
    """The processor and how much of it this process may use."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = names[0] if names else platform.processor() or platform.machine()
    return f"{model}, {usable_cores()} usable cores, {platform.system()} {platform.machine()}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def peak_memory_mib() -> float:
    """The most memory that this process has held (resident set)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; numbers with one digit after the point, all columns but those of words to the right."""
    cells = [[f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    rule = ["---" if cells and cells[0][at].lstrip("`")[:1].isalpha() else "---:" for at in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *cells))


def record(file: Path | None, name: str, values: Sequence[float]) -> None:
    """Add a line for ``benchmarks.summary`` to ``file``, where there is one: the values of all turns of a row."""
    if file is not None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"name": name, "values": list(values)}) + "\n")


def add_record_option(parser: argparse.ArgumentParser) -> None:
    """``--record FILE``, which is ``record``'s."""
    parser.add_argument("--record", type=Path, help="add the ratios of every turn to this file of JSON lines")


def say(text: str = "") -> None:
    """Print now: a reader of a pipe sees each part as it is done."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
