"""From the start of the process to the first caption, as ``limner caption one.jpg`` has it, and where the time goes:
``python -m benchmarks.cold_start --help``."""

import argparse
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.pictures import random_jpeg
from benchmarks.report import add_record_option, hardware, markdown_table, record, say
from models.catalog import DEFAULT_MODEL

HEADER = ("command", "runs", "s, median", "least", "most", "of processor, s, median", "least", "most")
IMPORTS_HEADER = ("package", "modules", "s of its own")
STAGES_HEADER = ("stage", "of processor, s, median", "least", "most")
COMMANDS: dict[str, tuple[str, ...]] = {
    "limner --version": ("--version",),
    "limner caption --help": ("caption", "--help"),
    "limner caption one.jpg --json": ("caption", "one.jpg", "--json"),
    "limner caption one.jpg --json --score": ("caption", "one.jpg", "--json", "--score"),
}
FIRST_CAPTION = "limner caption one.jpg --json"
_SHOWN = 12
_LINE = re.compile(r"import time:\s*(\d+) \|\s*(\d+) \|\s*(\S+)")

_STAGES = """
import sys, time
began = time.process_time()
def tell(what):
    global began
    print(what, time.process_time() - began)
    began = time.process_time()
from serving.cli_caption import caption
tell("the command's own modules")
import torch
tell("torch")
from models.pipeline import load_pipeline
from serving.folders.run import LocalStage
tell("the rest of limner's modules")
from serving.local_models import Wish, choose
choice = choose(Wish(sys.argv[2]), None)
pipeline = choice.load(device="cpu")
tell("model")
from models.images import read_image
image = read_image(sys.argv[1]).image
tell("picture")
pipeline.caption([image], choice.strategy)
tell("first caption")
pipeline.caption([image], choice.strategy)
tell("second caption")
"""


def timed(words: Sequence[str], place: Path) -> tuple[float, float]:
    """Seconds of a process, from its start to its end, and of processors: these hardly depend on what else runs."""
    began, used_s = time.perf_counter(), _processor_s()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, cwd=place)
    return time.perf_counter() - began, _processor_s() - used_s


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def imports(place: Path, words: Sequence[str]) -> list[tuple[object, ...]]:
    """Rows under ``IMPORTS_HEADER``: seconds by top package, which measuring itself makes longer."""
    command = [sys.executable, "-X", "importtime", "-m", "models.cli", *words]
    log = subprocess.run(command, check=True, cwd=place, capture_output=True, text=True).stderr
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for own_us, _, module in _LINE.findall(log):
        seconds[module.partition(".")[0]].append(int(own_us) / 1e6)
    largest = sorted(seconds.items(), key=lambda each: -sum(each[1]))
    rows: list[tuple[object, ...]] = [(name, len(own), f"{sum(own):.2f}") for name, own in largest[:_SHOWN]]
    rest = [second for _, own in largest[_SHOWN:] for second in own]
    return [*rows, ("all others", len(rest), f"{sum(rest):.2f}")]


def stages(place: Path, model: str, runs: int) -> list[tuple[object, ...]]:
    """Rows under ``STAGES_HEADER``, of processes that do the same step by step."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        command = [sys.executable, "-c", _STAGES, "one.jpg", model]
        told = subprocess.run(command, check=True, cwd=place, capture_output=True, text=True).stdout
        for line in told.splitlines():
            stage, _, spent_s = line.rpartition(" ")
            found[stage].append(float(spent_s))
    return [(stage, *_spread(values)) for stage, values in found.items()]


def commands(place: Path, model: str, runs: int) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Seconds of each of ``COMMANDS``, in turns, after one of each that warms the disk's cache."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(runs + 1):
        for name, words in COMMANDS.items():
            chosen = ("--model", model) if "one.jpg" in words else ()
            found[name].append(timed(["-m", "models.cli", *words, *chosen], place))
    return ((name, values[1:]) for name, values in found.items())


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "one.jpg").write_bytes(random_jpeg((500, 375), seed=0))
        say(f"## Cold start\n\n- {hardware()}; {options.model}; a JPEG of 500x375; files are in the disk's cache\n")
        rows: list[tuple[object, ...]] = []
        for name, values in commands(place, options.model, options.runs):
            walls, processors = zip(*values, strict=True)
            rows.append((name, len(values), *_spread(walls), *_spread(processors)))
            if name == FIRST_CAPTION:
                record(options.record, "cold start, s", walls)
        say(markdown_table(HEADER, rows) + "\n")
        say(markdown_table(STAGES_HEADER, stages(place, options.model, options.runs)) + "\n")
        say(markdown_table(IMPORTS_HEADER, imports(place, [*COMMANDS[FIRST_CAPTION], "--model", options.model])) + "\n")


def _spread(values: Sequence[float]) -> list[str]:
    return [f"{value:.2f}" for value in (statistics.median(values), min(values), max(values))]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.cold_start", description=" ".join((__doc__ or "").split()))
    parser.add_argument("--runs", type=int, default=7, help="of each command")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    add_record_option(parser)
    return parser


if __name__ == "__main__":
    main()
