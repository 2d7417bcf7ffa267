"""Latency and throughput of the server against the bare model in a loop: ``python -m benchmarks.throughput --help``.

The server and the loop take turns, so that whatever else the machine does meets both. What a request asks is what the
loop does: decode the JPEG, caption it with the model's own decoding, no score.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from benchmarks.pictures import random_jpeg
from benchmarks.report import hardware, markdown_table, percentile, say
from benchmarks.serving import LIMNER, free_port, running
from models.catalog import find_captioner
from models.decoding import parse_decode
from models.device import set_threads
from models.images import load_image
from models.pipeline import load_pipeline

HEADER = ("who", "clients", "images", "p50 ms", "p95 ms", "images/s", "rate / loop, median of turns")
ANCHORS = {"concise": {"model": "concise"}, "dial, d = 0": {"model": "dial", "descriptiveness": "0"}}
"""The same weights: what a request for the second adds is what the dial costs."""


@dataclass
class Turns:
    """What one contestant did, turn by turn."""

    times_ms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def add(self, times_ms: list[float], seconds: float) -> None:
        self.times_ms += times_ms
        self.rates.append(len(times_ms) / seconds)


def loop(model: str, bodies: Sequence[bytes]) -> Callable[[float], tuple[list[float], float]]:
    """A function that captions one picture after another for so many seconds: the time of each, and of all."""
    set_threads(None)
    pipeline = load_pipeline(model, scorer=None, device="cpu")
    strategy = parse_decode(None, find_captioner(model).card.decoding)

    def run(seconds: float) -> tuple[list[float], float]:
        times_ms: list[float] = []
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            started = time.perf_counter()
            pipeline.caption([load_image(bodies[len(times_ms) % len(bodies)]).image], strategy)
            times_ms.append((time.perf_counter() - started) * 1000)
        return times_ms, time.perf_counter() - began

    return run


async def ask(
    url: str, query: dict[str, str], bodies: Sequence[bytes], clients: int, seconds: float
) -> tuple[list[float], float]:
    """As many clients ask for one caption after the other."""
    times_ms: list[float] = []
    began = time.perf_counter()

    async def client_of(number: int, client: httpx.AsyncClient) -> None:
        while time.perf_counter() - began < seconds:
            started = time.perf_counter()
            answer = await client.post("/v1/captions", params=query, content=bodies[number % len(bodies)])
            answer.raise_for_status()
            times_ms.append((time.perf_counter() - started) * 1000)
            number += clients

    headers = {"content-type": "image/jpeg"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120, trust_env=False) as client:
        await asyncio.gather(*(client_of(number, client) for number in range(clients)))
    return times_ms, time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    bodies = [random_jpeg((options.width, options.width * 3 // 4), seed=seed) for seed in range(32)]
    port = free_port()
    command = [sys.executable, "-c", LIMNER, "serve", "--port", str(port), "--sample-share", "0"]
    command += [word for model in ("dial", "concise") for word in ("--model", model)]
    with running("limner", command, f"http://127.0.0.1:{port}") as url:
        bare = loop("concise", bodies)
        plain = {"model": "concise", "score": "false"}

        def served(clients: int, query: dict[str, str] = plain) -> tuple[list[float], float]:
            return asyncio.run(ask(url, query, bodies, clients, options.seconds))

        say("## `concise` behind `limner serve` against the model in a loop\n")
        say(f"- {hardware()}")
        say(f"- JPEGs of {options.width} px, beam 3 (its own decoding), no scores; {options.turns} turns of each")
        say(f"- turns of {options.seconds:g} s after a warm-up; rates and ratios are medians over the turns\n")
        rows = []
        for clients in options.clients:
            contestants = {
                ("loop, one by one", 1): lambda: bare(options.seconds),
                ("limner serve", clients): lambda clients=clients: served(clients),
            }
            rows += _rows(contestants, options.turns)
        say(markdown_table(HEADER, rows) + "\n")
        say("## The dial at an anchor\n")
        anchors = {
            (name, clients): lambda query=query, clients=clients: served(clients, {**query, "score": "false"})
            for name, query in ANCHORS.items()
            for clients in (8,)
        }
        say(markdown_table((*HEADER[:-1], "rate / first, median of turns"), _rows(anchors, options.turns)) + "\n")


def _rows(
    contestants: dict[tuple[str, int], Callable[[], tuple[list[float], float]]], turns: int
) -> list[tuple[object, ...]]:
    measured = {who: Turns() for who in contestants}
    for run in contestants.values():
        run()
    for turn in range(turns):
        order = list(contestants.items())
        for who, run in order if turn % 2 else reversed(order):
            measured[who].add(*run())
    first = next(iter(measured.values()))
    return [
        (
            *(*who, len(of.times_ms), percentile(of.times_ms, 0.5), percentile(of.times_ms, 0.95)),
            f"{statistics.median(of.rates):.1f}",
            f"{statistics.median(a / b for a, b in zip(of.rates, first.rates, strict=True)):.3f}",
        )
        for who, of in measured.items()
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.throughput", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--turns", type=int, default=4, help="of each, per row")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a turn")
    parser.add_argument("--width", type=int, default=500, help="width of the pictures, px")
    return parser


if __name__ == "__main__":
    main()
