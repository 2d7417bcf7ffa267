"""What is left of the bare model beside another program that takes a part of a core: ``python -m
benchmarks.contention``.

A server, its clients and its model share the cores of a small machine; this is what the sharing alone costs.
"""

import argparse
import subprocess
import sys
import time
from statistics import median

import torch

from benchmarks.pictures import random_jpeg
from benchmarks.report import hardware, markdown_table, say
from models.cpus import usable_cores
from models.decoding import parse_decode
from models.device import set_threads
from models.images import load_image
from models.pipeline import load_pipeline

BATCH = 32
TURNS = 3
_PULSE = """
import sys, time
share = float(sys.argv[1])
while True:
    began = time.perf_counter()
    while time.perf_counter() - began < 0.001: pass
    time.sleep(0.001 / share - 0.001)
"""
"""Busy for 1 ms at a time, as a server that answers."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="concise")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.3, 0.6], help="of a core, of the other program")
    args = parser.parse_args()
    pipeline = load_pipeline(args.model, scorer=None, device="cpu")
    strategy = parse_decode(None, pipeline.card.decoding)
    pictures = [load_image(random_jpeg((500, 375), seed=seed)).image for seed in range(BATCH)]

    def rate(threads: int) -> float:
        set_threads(threads)
        pipeline.caption(pictures, strategy)
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            pipeline.caption(pictures, strategy)
            done += BATCH
        return done / (time.perf_counter() - began)

    counts = sorted({1, usable_cores()})
    found: dict[tuple[float, int], list[float]] = {}
    for _ in range(TURNS):
        for share in (0.0, *args.shares):
            other = subprocess.Popen([sys.executable, "-c", _PULSE, str(share)]) if share else None
            for threads in counts:
                found.setdefault((share, threads), []).append(rate(threads))
            if other is not None:
                other.kill()
                other.wait()
    alone = {threads: median(found[0.0, threads]) for threads in counts}
    say(f"{args.model}, batch {BATCH}, bare model, {hardware()}, torch {torch.__version__}; median of {TURNS} turns\n")
    header = ("other program, cores", *(f"{threads} threads, images/s (share of alone)" for threads in counts))
    rows = [
        (f"{share:g}", *(_cell(median(found[share, threads]), alone[threads]) for threads in counts))
        for share in (0.0, *args.shares)
    ]
    say(markdown_table(header, rows))


def _cell(rate: float, alone: float) -> str:
    return f"{rate:.1f} ({rate / alone:.2f})"


if __name__ == "__main__":
    main()
