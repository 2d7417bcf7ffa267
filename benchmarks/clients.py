"""Clients that cost their machine little, so that what is measured is the server: bytes over kept connections."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Post:
    """One request, ready to be sent."""

    data: bytes
    """Head and body."""
    images: int

    @classmethod
    def of(cls, path: str, body: bytes, content_type: str, images: int = 1) -> "Post":
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        return cls(head.encode() + body, images)


@dataclass(frozen=True)
class Answers:
    """What closed loops of clients got."""

    times_ms: list[float]
    images: int
    """Answered before the end; the seconds are those until the last of them."""
    seconds: float
    cpu_s: float
    """Of the process of the clients."""
    model_ms: list[float]
    """Of each answer, what it says that encoding and decoding took."""

    @property
    def rate(self) -> float:
        """Images per second."""
        return self.images / self.seconds


async def closed_loop(url: str, posts: Sequence[Post], clients: int, seconds: float) -> Answers:
    """Each client sends the next post when the answer to the last one is there.

    Raises:
        RuntimeError: an answer is not 200.
    """
    times_ms: list[float] = []
    model_ms: list[float] = []
    images = 0
    began, cpu_began = time.perf_counter(), time.process_time()

    async def client(number: int) -> None:
        nonlocal images
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        while time.perf_counter() - began < seconds:
            post = posts[number % len(posts)]
            started = time.perf_counter()
            writer.write(post.data)
            timing = (await _answer(reader))["timing_ms"]
            times_ms.append((time.perf_counter() - started) * 1000)
            model_ms.append(timing["encode"] + timing["decode"])
            images += post.images
            number += clients
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return Answers(times_ms, images, time.perf_counter() - began, time.process_time() - cpu_began, model_ms)


async def _answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(int(line.partition(":")[2]) for line in head.splitlines() if line.startswith("content-length:"))
    body = await reader.readexactly(length)
    if head.split(" ", 2)[1] != "200":
        raise RuntimeError(f"{head.splitlines()[0]}: {body[:300]!r}")
    answer: dict[str, Any] = json.loads(body)
    if any(result.get("error") for result in answer["results"]):
        raise RuntimeError(f"an image failed: {body[:300]!r}")
    return answer
