"""What scoring a sample of the captions costs those who wait for theirs: ``python -m benchmarks.monitoring --help``.

Two servers of the same model, one of them without a sample, are asked in turn for captions without scores.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import httpx

from benchmarks.pictures import random_jpeg
from benchmarks.report import hardware, markdown_table, percentile, say
from benchmarks.serving import LIMNER, free_port, running

HEADER = (
    "sample",
    "turns",
    "images",
    "p50 ms",
    "p95 ms",
    "images/s",
    "of the other, median of turns",
    "sampled",
    "scored",
)
SAMPLED, SHED, SCORED = "limner_scores_sampled_total", "limner_scores_shed_total", "limner_clip_score_count"


class Turns:
    """What one server did, turn by turn."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.times_ms: list[float] = []
        self.rates: list[float] = []


async def load(turns: Turns, bodies: Sequence[bytes], clients: int, seconds: float, *, measured: bool) -> None:
    """One turn: ``clients`` ask for one caption after the other."""
    times_ms: list[float] = []
    end = time.perf_counter() + seconds

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        while time.perf_counter() < end:
            began = time.perf_counter()
            body = bodies[number % len(bodies)]
            answer = await client.post("/v1/captions", params={"score": "false"}, content=body)
            answer.raise_for_status()
            times_ms.append((time.perf_counter() - began) * 1000)
            number += clients

    began = time.perf_counter()
    headers = {"content-type": "image/jpeg"}
    async with httpx.AsyncClient(base_url=turns.url, headers=headers, timeout=120, trust_env=False) as client:
        await asyncio.gather(*(ask(client, number) for number in range(clients)))
    if measured:
        turns.times_ms += times_ms
        turns.rates.append(len(times_ms) / (time.perf_counter() - began))


def value(url: str, name: str) -> float:
    """The sum of a metric over its labels."""
    lines = httpx.get(f"{url}/metrics", trust_env=False).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def settled(url: str) -> tuple[float, float]:
    """Sampled and scored images once nothing waits to be scored any more."""
    give_up = time.monotonic() + 60
    while True:
        sampled, shed, scored = (value(url, name) for name in (SAMPLED, SHED, SCORED))
        if sampled == shed + scored or time.monotonic() > give_up:
            return sampled, scored
        time.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    bodies = [random_jpeg((options.width, options.width * 3 // 4), seed=seed) for seed in range(32)]
    with ExitStack() as stack:
        servers = {}
        for share in (0.0, options.share):
            port = free_port()
            command = [sys.executable, "-c", LIMNER, "serve", "--model", options.model, "--port", str(port)]
            command += ["--sample-share", str(share)]
            servers[share] = Turns(stack.enter_context(running(f"{share:g}", command, f"http://127.0.0.1:{port}")))
        sampling = servers[options.share].url
        while not value(sampling, "limner_scorer_up"):
            time.sleep(0.5)
        for turns in servers.values():
            asyncio.run(load(turns, bodies, options.clients, options.seconds, measured=False))
        before = settled(sampling)
        for turn in range(options.turns):
            order = list(servers.values())
            for turns in order if turn % 2 else reversed(order):
                asyncio.run(load(turns, bodies, options.clients, options.seconds, measured=True))
        after = settled(sampling)
        say(f"## `{options.model}`, {options.clients} clients, with and without a scored sample\n")
        say(f"- {hardware()}")
        say(
            f"- JPEGs of {options.width} px, no scores asked for; turns of {options.seconds:g} s each after a warm-up\n"
        )
        say(markdown_table(HEADER, [_row(share, servers, before, after) for share in servers]) + "\n")


def _row(
    share: float, servers: dict[float, Turns], before: tuple[float, float], after: tuple[float, float]
) -> tuple[object, ...]:
    turns, other = servers[share], next(found for key, found in servers.items() if key != share)
    ratio = statistics.median(mine / theirs for mine, theirs in zip(turns.rates, other.rates, strict=True))
    sampled, scored = (after[0] - before[0], after[1] - before[1]) if share else (0.0, 0.0)
    return (
        *(f"{share:g}", len(turns.rates), len(turns.times_ms)),
        *(percentile(turns.times_ms, 0.5), percentile(turns.times_ms, 0.95)),
        *(f"{statistics.median(turns.rates):.2f}", f"{ratio:.3f}"),
        *(f"{sampled:g}", f"{scored / sampled:.1%}" if sampled else ""),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.monitoring", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="concise", help="id, folder or hub id (default: %(default)s)")
    parser.add_argument("--share", type=float, default=0.1, help="sampled share of the second server")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--turns", type=int, default=6, help="of each server")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a turn")
    parser.add_argument("--width", type=int, default=500, help="width of the pictures, px")
    return parser


if __name__ == "__main__":
    main()
