"""Throughput and latency of the server against the bare model from bytes: ``python -m benchmarks.throughput --help``.

The server and the bare model take turns on the same cores, so that whatever else the machine does meets both. What a
request asks is what the bare model does: decode the JPEG, caption it with the model's own decoding, no score.
"""

import argparse
import asyncio
import base64
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from benchmarks.blip_base import save_blip_base
from benchmarks.clients import Answers, Post, closed_loop
from benchmarks.pictures import random_jpeg
from benchmarks.report import add_record_option, hardware, markdown_table, percentile, record, say
from benchmarks.serving import LIMNER, free_port, running
from models.caption_session import Ask, Manner
from models.cpus import usable_cores
from models.decoding import parse_decode
from models.device import set_threads
from models.images import load_image
from models.pipeline import CaptionPipeline, load_pipeline

HEADER = ("what", "clients", "bare images/s", "served images/s", "served / bare (range)", "clients' CPU")
OPTIONS: dict[str, dict[str, object]] = {
    "its own": {},
    "greedy": {"name": "greedy"},
    "five beams": {"name": "beam", "options": {"beams": 5}},
    "sampled": {"name": "sample", "options": {"top_p": 0.9, "max_tokens": 24}},
}
"""Of mixed traffic."""
BLIP: dict[str, object] = {"name": "beam", "options": {"beams": 3, "min_tokens": 20, "max_tokens": 20}}
"""Equally many tokens for all: the weights are random."""
Run = Callable[[], float]
"""One turn; images per second."""


def bare(
    pipeline: CaptionPipeline,
    bodies: Sequence[bytes],
    batch: int,
    seconds: float,
    decodes: Sequence[dict[str, object] | None] = (None,),
) -> Run:
    """The model alone: files opened by two threads, one batch ahead; captioned batch by batch, the pictures of one by
    ``decodes`` in turn."""
    manners = [Manner(parse_decode(decode, pipeline.card.decoding)) for decode in decodes]

    def run() -> float:
        images = 0
        with ThreadPoolExecutor(2) as pool:

            def opened() -> list[object]:
                return [pool.submit(load_image, bodies[number % len(bodies)]) for number in range(batch)]  # type: ignore[return-value]

            began = time.perf_counter()
            coming = opened()
            while time.perf_counter() - began < seconds:
                pictures = [future.result().image for future in coming]  # type: ignore[attr-defined]
                coming = opened()
                asks = [Ask(manners[place % len(manners)], picture) for place, picture in enumerate(pictures)]
                pipeline.caption_asks(asks)
                images += batch
            return images / (time.perf_counter() - began)

    return run


def alone(pipeline: CaptionPipeline, bodies: Sequence[bytes], seconds: float) -> Callable[[], float]:
    """The model alone, one picture at a time: the median of its milliseconds."""
    strategy = parse_decode(None, pipeline.card.decoding)

    def run() -> float:
        times_ms = []
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            started = time.perf_counter()
            pipeline.caption([load_image(bodies[len(times_ms) % len(bodies)]).image], strategy)
            times_ms.append((time.perf_counter() - started) * 1000)
        return percentile(times_ms, 0.5)

    return run


def raw(model: str, body: bytes, decode: dict[str, object] | None = None) -> Post:
    """One picture as it is."""
    asked = f"&decode={quote(json.dumps(decode))}" if decode else ""
    return Post.of(f"/v1/captions?model={quote(model)}&score=false{asked}", body, "image/jpeg")


def many(model: str, bodies: Sequence[bytes]) -> Post:
    """Pictures in one JSON body."""
    images = [{"base64": base64.b64encode(body).decode()} for body in bodies]
    asked = json.dumps({"images": images, "model": model, "score": False}).encode()
    return Post.of("/v1/captions", asked, "application/json", len(bodies))


class Served:
    """A server under closed loops of clients."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        self.last: Answers | None = None

    def rate(self, posts: Sequence[Post], clients: int) -> Run:
        def run() -> float:
            self.last = asyncio.run(closed_loop(self._url, posts, clients, self._seconds))
            return self.last.rate

        return run

    def p50_ms(self, posts: Sequence[Post], of_the_model: list[float]) -> Callable[[], float]:
        """``of_the_model`` gets what encoding and decoding took of it."""

        def run() -> float:
            self.last = asyncio.run(closed_loop(self._url, posts, 1, self._seconds))
            of_the_model.append(percentile(self.last.model_ms, 0.5))
            return percentile(self.last.times_ms, 0.5)

        return run

    @property
    def clients_cpu(self) -> str:
        """Share of a core that the clients took in the last turn."""
        assert self.last is not None
        return f"{100 * self.last.cpu_s / self.last.seconds:.0f} %"


def in_turn(first: Callable[[], float], second: Callable[[], float], turns: int) -> tuple[list[float], list[float]]:
    """Each run once to warm up, then in turn; who goes first alternates."""
    first(), second()
    measured: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns):
        for number in (0, 1) if turn % 2 else (1, 0):
            measured[number].append((first, second)[number]())
    return measured


def shares(bases: Sequence[float], values: Sequence[float]) -> list[float]:
    """The ratios, turn by turn."""
    return [value / base for base, value in zip(bases, values, strict=True)]


def ratio(bases: Sequence[float], values: Sequence[float]) -> str:
    """Their median and range."""
    ratios = shares(bases, values)
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


@contextmanager
def server(models: Sequence[str], seconds: float, *more: str) -> Iterator[Served]:
    """``limner serve`` with these models, without scores."""
    port = free_port()
    command = [sys.executable, "-c", LIMNER, "serve", "--port", str(port), "--no-scorer", "--feature-cache", "0", *more]
    command += [word for model in models for word in ("--model", model)]
    with running("limner", command, f"http://127.0.0.1:{port}") as url:
        yield Served(url, seconds)


def compact_rows(bodies: Sequence[bytes], options: argparse.Namespace) -> None:
    """All that is measured of the bundled model: of a server as it starts by default and, where there are several
    cores, of one with a captioner for each. One after the other, since a server that idles takes its part too."""
    cores = usable_cores()
    words = {"": ()} | ({f", {cores} captioners": ("--captioners", str(cores))} if cores > 1 else {})
    set_threads(None)
    pipeline = load_pipeline("concise", scorer=None, device="cpu")
    rates, waits = [], []
    for which, more in words.items():
        with server(["concise"], options.seconds, *more) as served:
            rates += _rates(which, served, pipeline, bodies, options)
            waits.append(_one_client(which, served, pipeline, bodies, options))
    say("## `concise`: images per second against the bare model, batch 32\n")
    say(markdown_table(HEADER, rates) + "\n")
    say("## One client\n")
    columns = ("server", "bare p50 ms", "served p50 ms", "its encoding and decoding", "more ms", "range")
    say(markdown_table(columns, waits) + "\n")
    with server(["concise"], options.seconds) as served:
        _mixed(served, pipeline, bodies, options)


def _rates(
    which: str, served: Served, pipeline: CaptionPipeline, bodies: Sequence[bytes], options: argparse.Namespace
) -> list[tuple[object, ...]]:
    """Rows under ``HEADER``."""
    eight = [many("concise", [bodies[(8 * at + number) % len(bodies)] for number in range(8)]) for at in range(4)]
    contestants = {
        ("1 image a request", 32): [raw("concise", body) for body in bodies],
        ("8 images a request", 8): eight,
    }
    rows: list[tuple[object, ...]] = []
    for (what, clients), posts in contestants.items():
        pair = in_turn(bare(pipeline, bodies, 32, options.seconds), served.rate(posts, clients), options.turns)
        pace = (f"{statistics.median(values):.1f}" for values in pair)
        rows.append((what + which, clients, *pace, ratio(*pair), served.clients_cpu))
        record(options.record, what + (", captioners" if which else ""), shares(*pair))
    return rows


def _one_client(
    which: str, served: Served, pipeline: CaptionPipeline, bodies: Sequence[bytes], options: argparse.Namespace
) -> tuple[object, ...]:
    inside: list[float] = []
    asked = served.p50_ms([raw("concise", body) for body in bodies], inside)
    times = in_turn(alone(pipeline, bodies, options.seconds), asked, options.turns)
    more = [after - before for before, after in zip(*times, strict=True)]
    record(options.record, "one client, more ms" + (", captioners" if which else ""), more)
    cells = [statistics.median(values) for values in (*times, inside, more)]
    return (which.removeprefix(", ") or "by default", *cells, f"{min(more):.1f} to {max(more):.1f}")


def _mixed(served: Served, pipeline: CaptionPipeline, bodies: Sequence[bytes], options: argparse.Namespace) -> None:
    """Four option sets at once against each by itself; the same of the bare model, and of the bare model in batches of
    one option set and so of a quarter of the clients: what there would be if different options shared no steps."""
    uniform = {name: [raw("concise", body, decode) for body in bodies] for name, decode in OPTIONS.items()}
    together = [posts[number] for number in range(len(bodies)) for posts in uniform.values()]
    runs = {name: served.rate(posts, 32) for name, posts in uniform.items()}
    mixed = served.rate(together, 32)
    mixed()
    parts, paces = [], []
    for _ in range(options.turns):
        paces.append([run() for run in runs.values()])
        parts.append(mixed() / statistics.harmonic_mean(paces[-1]))
    record(options.record, "mixed", parts)
    medians = [f"{statistics.median(pace):.1f}" for pace in zip(*paces, strict=True)]
    say("## Mixed traffic, 32 clients: images per second of each option set alone, and together\n")
    row = (*medians, f"{statistics.median(parts):.2f} ({min(parts):.2f} to {max(parts):.2f})")
    say(markdown_table((*OPTIONS, "mixed / harmonic mean (range)"), [row]) + "\n")
    decodes = [decode or None for decode in OPTIONS.values()]
    alone = [bare(pipeline, bodies, 32, 2, [decode]) for decode in decodes]
    apart = [bare(pipeline, bodies, 8, 2, [decode]) for decode in decodes]
    shared = bare(pipeline, bodies, 32, 2, decodes)
    for run in (*alone, *apart, shared):
        run()
    turns = [
        (
            statistics.harmonic_mean([run() for run in alone]),
            statistics.harmonic_mean([run() for run in apart]),
            shared(),
        )
        for _ in range(options.turns)
    ]
    for what, place in (("all in batches of 32", 2), ("each in batches of 8", 1)):
        limits = ratio([turn[0] for turn in turns], [turn[place] for turn in turns])
        say(f"The bare model, four option sets {what}, against each in batches of 32: {limits}\n")


def blip_rows(bodies: Sequence[bytes], options: argparse.Namespace) -> None:
    """A model of BLIP-base's size with random weights, whose captions are as long as they may be."""
    with tempfile.TemporaryDirectory() as folder:
        model = str(save_blip_base(Path(folder) / "blip-base"))
        with server([model], options.seconds, "--dtype", "auto") as served:
            set_threads(None)
            pipeline = load_pipeline(model, scorer=None, device="cpu", dtype="auto")
            posts = [raw(Path(model).name, body, BLIP) for body in bodies]  # served by the name of its folder
            pair = in_turn(bare(pipeline, bodies, 4, options.seconds, [BLIP]), served.rate(posts, 8), options.turns)
            record(options.record, "BLIP-base served", shares(*pair))
    pace = (f"{statistics.median(values):.2f}" for values in pair)
    say("## BLIP-base's size, `--dtype auto`: images per second against the bare model, batch 4\n")
    say(markdown_table(HEADER, [("1 image a request", 8, *pace, ratio(*pair), served.clients_cpu)]) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    bodies = [random_jpeg((options.width, options.width * 3 // 4), seed=seed) for seed in range(32)]
    say("## `limner serve` against the bare model\n")
    say(f"- {hardware()}; the clients run on the same cores")
    say(f"- JPEGs of {options.width} px from bytes, the models' own decoding, no scores, no picture known from before")
    say(f"- {options.turns} turns of {options.seconds:g} s each after a warm-up; medians over the turns\n")
    if options.compact:
        compact_rows(bodies, options)
    if options.blip:
        blip_rows(bodies, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.throughput", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=4, help="of each contestant, per row")
    parser.add_argument("--seconds", type=float, default=6.0, help="of a turn")
    parser.add_argument("--width", type=int, default=500, help="width of the pictures, px")
    parser.add_argument("--compact", action=argparse.BooleanOptionalAction, default=True, help="the bundled model")
    parser.add_argument("--blip", action=argparse.BooleanOptionalAction, default=True, help="a BLIP-base too")
    add_record_option(parser)
    return parser


if __name__ == "__main__":
    main()
