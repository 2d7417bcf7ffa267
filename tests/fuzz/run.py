"""``make fuzz``: the fuzz tests on ever new examples until the time is over, and what they came to."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.support import REPORT, TIMES

_TESTS = ["tests/fuzz", "tests/serving/test_schemathesis.py"]
_TIMES_PER_ROUND = "10"


def main(minutes: float) -> int:
    """Rounds of all fuzz tests, each with a seed of its own; 1 as soon as a round finds a fault."""
    started = time.monotonic()
    examples: Counter[str] = Counter()
    rounds, status = 0, 0
    while status == 0 and (rounds == 0 or time.monotonic() - started < 60 * minutes):
        seed = int.from_bytes(os.urandom(4), "big")
        status = _round(seed, examples)
        rounds += 1
    took = time.monotonic() - started
    for name, count in sorted(examples.items()):
        sys.stdout.write(f"{count:>9,}  {name}\n")
    faults = "no fault" if status == 0 else f"a fault, above; the round again: --hypothesis-seed={seed}"
    sys.stdout.write(f"{examples.total():>9,}  examples in {rounds} rounds and {took / 60:.1f} minutes: {faults}\n")
    return status


def _round(seed: int, examples: Counter[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "examples.json"
        environment = {**os.environ, TIMES: _TIMES_PER_ROUND, REPORT: str(report)}
        command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", *_TESTS]
        status = subprocess.run(command, env=environment, check=False).returncode
        examples.update(json.loads(report.read_bytes()) if report.exists() else {})
    return status


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
