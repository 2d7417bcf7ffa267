"""What limner's HTTP path adds to a bare FastAPI handler: ``python -m benchmarks.serving --help``.

Both servers run on 127.0.0.1 at the same time and are asked in turn, so that whatever else the machine does meets both.
"""

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from benchmarks.pictures import random_jpeg
from benchmarks.report import hardware, markdown_table, percentile, say

ROOT = Path(__file__).resolve().parents[1]
READY_WITHIN_S = 120.0
STOP_WITHIN_S = 40.0
BLOCKS = 4
"""Turns of each server per row."""
HEADER = (
    *("concurrency", "server", "requests", "p50 ms", "p95 ms", "min ms", "inside p50 ms"),
    *("requests/s", "p50 / bare", "rate / bare"),
)
DECODE = '{"name": "greedy", "options": {"max_tokens": 1}}'
"""As little work for the captioner as there can be: what is measured is the way to it and back."""
LIMNER = "import sys; from models.cli import main; sys.exit(main())"


@contextmanager
def running(name: str, command: Sequence[str], url: str) -> Iterator[str]:
    """``url``, where the server that ``command`` starts answers while the block runs."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_until_ready(name, process, url, log)
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(name: str, process: subprocess.Popen[bytes], url: str, log: IO[bytes]) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    log.seek(0)
    raise SystemExit(f"{name} did not get ready:\n{log.read()[-4000:].decode(errors='replace')}")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Times:
    """What was measured of one server."""

    requests_ms: list[float] = field(default_factory=list)
    handler_ms: list[float] = field(default_factory=list)
    """What the answers say they took, from the arrival in the ingress; a bare server does not say."""
    seconds: float = 0.0


async def ask(url: str, body: bytes, requests: int, concurrency: int, times: Times) -> None:
    """Send ``requests`` requests, ``concurrency`` at a time."""
    left = iter(range(requests))
    request: dict[str, Any] = {"params": {"decode": DECODE}, "content": body, "headers": {"content-type": "image/jpeg"}}

    async def worker(client: httpx.AsyncClient) -> None:
        for _ in left:
            began = time.perf_counter()
            answer = await client.post(f"{url}/v1/captions", **request)
            times.requests_ms.append((time.perf_counter() - began) * 1000)
            answer.raise_for_status()
            if timing := answer.json().get("timing_ms"):
                times.handler_ms.append(timing["total"])

    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        began = time.perf_counter()
        await asyncio.gather(*(worker(client) for _ in range(concurrency)))
        times.seconds += time.perf_counter() - began


def compare(servers: dict[str, str], body: bytes, requests: int, concurrency: int) -> list[tuple[object, ...]]:
    """Rows under ``HEADER``, the bare server's first; every server has warmed up before."""
    measured = {name: Times() for name in servers}
    for url in servers.values():
        asyncio.run(ask(url, body, 4 * concurrency, concurrency, Times()))
    for _ in range(BLOCKS):
        for name, url in servers.items():
            asyncio.run(ask(url, body, requests // BLOCKS, concurrency, measured[name]))
    first, *_ = (_numbers(times) for times in measured.values())
    rows = []
    for name, times in measured.items():
        p50, p95, least, rate = _numbers(times)
        inside = f"{percentile(times.handler_ms, 0.5):.1f}" if times.handler_ms else ""
        ratios = f"{p50 / first[0]:.2f}", f"{rate / first[3]:.3f}"
        rows.append((concurrency, name, len(times.requests_ms), p50, p95, least, inside, rate, *ratios))
    return rows


def _numbers(times: Times) -> tuple[float, float, float, float]:
    """p50, p95 and least milliseconds of a request, and requests per second."""
    values = times.requests_ms
    return percentile(values, 0.5), percentile(values, 0.95), min(values), len(values) / times.seconds


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    body = random_jpeg((options.width, options.width * 3 // 4), seed=0)
    ports = free_port(), free_port()
    bare = [sys.executable, "-m", "uvicorn", "benchmarks.bare_app:app", "--port", str(ports[0]), "--no-access-log"]
    limner = [sys.executable, "-c", LIMNER, "serve", "--model", options.model, "--no-scorer", "--port", str(ports[1])]
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(running(name, command, f"http://127.0.0.1:{port}"))
            for name, command, port in (("bare", bare, ports[0]), (options.model, limner, ports[1]))
        }
        say(f"## HTTP: `{options.model}` behind `limner serve` against a bare FastAPI handler\n")
        say(f"- {hardware()}")
        say(f"- one JPEG of {len(body) / 1024:.0f} KiB per request; {BLOCKS} turns of each server after a warm-up")
        say("- inside: what the answers say they took; the rest is the client, Ray's proxy and the way between them\n")
        rows = [
            row for concurrency in options.concurrency for row in compare(servers, body, options.requests, concurrency)
        ]
        say(markdown_table(HEADER, rows) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.serving", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="fake", help="id, folder or hub id (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=200, help="requests of each server per row")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--width", type=int, default=320, help="width of the picture, px")
    return parser


if __name__ == "__main__":
    main()
