"""Clients that hang up, in every phase of a request: the server is afterwards as it was before."""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.serving.raw_http import post
from tests.serving.support import b64, pictures, png

BEAM = {"name": "beam", "options": {"beams": 16, "max_tokens": 40}}


def requests() -> list[bytes]:
    """Of every route that works, in every form."""
    images = [{"base64": b64(picture)} for picture in pictures(4)]
    arms = [{"label": "a", "decode": BEAM}, {"label": "b"}]
    chat = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:;base64,{b64(png())}"}}]}]
    bodies = [
        ("captions", {"images": images, "decode": BEAM}),
        ("captions", {"images": images[:1], "experiment": "tone", "unit": "u"}),
        ("compare", {"images": images, "arms": arms}),
        ("score", {"images": images, "captions": [["a dog"]] * 4}),
        ("chat/completions", {"model": "fake", "messages": chat, "stream": True}),
    ]
    made = [post(f"/v1/{name}", json.dumps(body).encode(), content_type=b"application/json") for name, body in bodies]
    return [*made, post("/v1/captions", png(size=(2000, 1500)))]


async def leave(server: str, request: bytes, phase: str, chance: random.Random) -> str:
    """One client; what it saw of the answer."""
    address = urlsplit(server)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = request.index(b"\r\n\r\n") + 4
    stop = {"connected": 0, "head": chance.randrange(1, head), "body": chance.randrange(head, len(request))}
    writer.write(request[: stop.get(phase, len(request))])
    await writer.drain()
    try:
        if phase == "answer":
            return "part" if await reader.read(20) else "nothing"
        if phase == "finished":  # it says that it will send no more, and leaves before the answer
            writer.write_eof()
        if phase in ("waiting", "finished"):
            await asyncio.sleep(chance.random() * 0.2)
        return "nothing"
    finally:
        writer.transport.abort() if chance.random() < 0.7 else writer.close()


PHASES = ("connected", "head", "body", "sent", "waiting", "answer", "finished")


async def storm(server: str, clients: int, chance: random.Random) -> Counter[str]:
    """That many clients leave, all at once; how many of them saw a part of their answer, by phase."""
    asked = requests()
    phases = [PHASES[number % len(PHASES)] for number in range(clients)]
    saw = await asyncio.gather(*(leave(server, chance.choice(asked), phase, chance) for phase in phases))
    return Counter(phase for phase, what in zip(phases, saw, strict=True) if what == "part")


def serve_processes() -> dict[int, psutil.Process]:
    """The replicas that this test session started, by pid."""
    children = psutil.Process().children(recursive=True)
    ray = {process.pid: process for process in children if "".join(process.cmdline()[:1]).startswith("ray::")}
    return {pid: ray[pid] for pid in ray if "ServeReplica" in ray[pid].cmdline()[0]}


async def settled(client: httpx.AsyncClient) -> None:
    """Wait until no picture waits and no request is under way, but this one."""
    async with asyncio.timeout(60):
        while True:
            lines = (await client.get("/metrics")).text.splitlines()
            if {"limner_queue_images 0.0", "limner_requests_under_way 0.0"} <= set(lines):
                return
            await asyncio.sleep(0.1)


async def failed(client: httpx.AsyncClient) -> list[str]:
    """The counts of failures of the server itself."""
    lines = (await client.get("/metrics")).text.splitlines()
    return [line for line in lines if line.startswith("limner_requests_total") and 'status="500"' in line]


async def files_closed(processes: dict[int, psutil.Process], before: dict[int, int]) -> None:
    """Wait until no process has more files and sockets open than before, but for a few connections kept alive."""
    try:
        async with asyncio.timeout(30):
            while any(process.num_fds() > before[pid] + 8 for pid, process in processes.items()):
                await asyncio.sleep(0.2)
    except TimeoutError:
        now = {pid: (process.num_fds(), process.cmdline()[0].strip()) for pid, process in processes.items()}
        raise AssertionError(f"open files before {before}, afterwards {now}") from None


async def weather(server: str, clients: int) -> str:
    """A storm and what is checked after it; the figures of it."""
    async with httpx.AsyncClient(base_url=server, timeout=60, trust_env=False) as client:
        await storm(server, len(PHASES), random.Random(1))  # what is made on first use
        await settled(client)
        processes = serve_processes()
        files = {pid: process.num_fds() for pid, process in processes.items()}
        failures = await failed(client)
        assert len(files) >= 3, "no processes of Serve found"
        began = time.monotonic()
        saw = await storm(server, clients, random.Random(0))
        assert set(saw) == {"answer"}
        left = time.monotonic()
        answer = await client.post("/v1/captions", content=png(), headers={"content-type": "image/png"})
        assert answer.status_code == 200, answer.text
        answered = time.monotonic()
        await settled(client)
        at_rest = time.monotonic()
        await files_closed(processes, files)
        assert await failed(client) == failures  # whoever leaves is no failure of the server
        assert set(serve_processes()) == set(processes)  # nobody died of it
    resident_mb = sum(process.memory_info().rss for process in processes.values()) >> 20
    return (
        f"{clients} clients left within {left - began:.1f} s; the next request took {answered - left:.2f} s; "
        f"queue and requests at 0 after {at_rest - left:.1f} s; {resident_mb} MiB in {len(processes)} processes"
    )


def test_a_hundred_clients_that_leave_change_nothing(server: str) -> None:
    asyncio.run(weather(server, 100))


@pytest.mark.slow
def test_a_storm_of_500(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        figures = asyncio.run(weather(server, 500))
        with capsys.disabled():
            sys.stdout.write(f"\n{figures}\n")
