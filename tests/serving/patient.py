"""Clients that do what the documents ask of them: after a 503 they wait as told, and send the same request again."""

import asyncio
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from serving.experiments.records import outcome_id
from tests.serving.support import b64, pictures
from tests.serving.wire import Reply, Request, ask

CAPTION, VOTE, METRICS = "caption", "vote", "metrics"
NO_ANSWER = 0
_AFTER_NO_ANSWER_S = 1.0
_METRICS_EVERY_S = 0.3
_GIVE_UP_S = 90.0


@dataclass(frozen=True)
class Try:
    """One request and what came of it."""

    kind: str
    at: float
    """When the answer came, on the clock of ``time.monotonic``."""
    took_s: float
    status: int
    picture: int = 0
    text: str = ""
    """Of the caption, or of the refusal."""


class Patient:
    """Visitors of an experiment, each with a picture of its own, which they have captioned again and again; every
    second one votes on each caption."""

    def __init__(self, url: str, experiment: str, visitors: int, pause_s: float) -> None:
        self._url = url
        self._experiment = experiment
        self._visitors = visitors
        self._pause_s = pause_s
        self._name = uuid.uuid4().hex
        self._pictures = [b64(picture) for picture in pictures(visitors)]
        self._leaving = threading.Event()
        self.tries: list[Try] = []
        self.captioned: set[str] = set()
        """The ids of the outcomes of answered captions."""
        self.votes: dict[str, int] = {}
        """Those answered, by outcome."""
        self.given_up: list[str] = []
        """What was asked again and again, and never answered."""

    def since(self, kind: str, since: float) -> list[Try]:
        """What was answered after a moment."""
        return [each for each in self.tries if each.kind == kind and each.at >= since]

    def failed(self, kind: str, since: float) -> list[Try]:
        """Those of them that were refused or got no answer."""
        return [each for each in self.since(kind, since) if each.status != 200]

    def until_served_since(self, moment: float, within_s: float = 60) -> None:
        """Wait until every visitor has a caption, and somebody a vote and the metrics, asked for after a moment and
        after the last failure."""
        give_up = time.monotonic() + within_s
        while True:
            tries = list(self.tries)
            since = max([moment, *(each.at for each in tries if each.status != 200)])
            asked = [each for each in tries if each.at - each.took_s > since]
            served = {each.picture for each in asked if each.kind == CAPTION}
            if len(served) == self._visitors and {VOTE, METRICS} <= {each.kind for each in asked}:
                return
            assert time.monotonic() < give_up, tries[-20:]
            time.sleep(0.05)

    def told(self, kind: str, since: float) -> str:
        """In words for the section of figures."""
        found, failed = self.since(kind, since), self.failed(kind, since)
        slowest_s = max((each.took_s for each in found), default=0.0)
        until = f", the last after {max(each.at for each in failed) - since:.1f} s" if failed else ""
        statuses = dict(Counter(each.status for each in failed))
        return f"{len(failed)} of {len(found)} failed {statuses or ''}{until}; slowest {slowest_s:.1f} s"

    @contextmanager
    def visiting(self) -> Iterator[None]:
        """Visitors come while the block runs; at its end everyone still gets an answer."""
        thread = threading.Thread(target=lambda: asyncio.run(self._visit_all()))
        thread.start()
        try:
            yield
        finally:
            self._leaving.set()
            thread.join()

    async def _visit_all(self) -> None:
        visitors = (self._visit(number) for number in range(self._visitors))
        await asyncio.gather(*visitors, self._watch())

    async def _visit(self, number: int) -> None:
        count = 0
        while not self._leaving.is_set():
            count += 1
            asked = {"images": [{"base64": self._pictures[number]}], "unit": f"u{number}-{count % 5}"}
            named = {"x-request-id": f"{self._name}-{number}-{count}"}
            request = Request.of_json("/v1/captions", {**asked, "experiment": self._experiment}, **named)
            if (reply := await self._until_answered(CAPTION, request, number)) is None:
                continue
            got = reply.json()
            self.captioned.add(outcome_id(self._experiment, got["id"], 0))
            if number % 2:
                await self._vote(number, got, 1 if count % 3 else -1)
            await asyncio.sleep(self._pause_s)

    async def _vote(self, number: int, caption: Any, value: int) -> None:
        arm = caption["results"][0]["experiment"]["arm"]
        vote = {"request_id": caption["id"], "index": 0, "arm": arm, "value": value}
        path = f"/v1/experiments/{self._experiment}/votes"
        if await self._until_answered(VOTE, Request.of_json(path, vote), number) is not None:
            self.votes[outcome_id(self._experiment, caption["id"], 0)] = value

    async def _until_answered(self, kind: str, request: Request, number: int) -> Reply | None:
        """The answer; None where it was no 503 that stood against it, or there was none for long."""
        give_up = time.monotonic() + _GIVE_UP_S
        while True:
            reply = await self._try(kind, request, number)
            if reply is not None and reply.status == 200:
                return reply
            if (reply is not None and reply.status < 500) or time.monotonic() > give_up:
                self.given_up.append(f"{kind}: {reply}")
                return None
            told_s = None if reply is None else reply.headers.get("retry-after")
            await asyncio.sleep(_AFTER_NO_ANSWER_S if told_s is None else float(told_s))

    async def _watch(self) -> None:
        """Reads the metrics, as Prometheus does."""
        while not self._leaving.is_set():
            await self._try(METRICS, Request("/metrics", method="GET"), 0)
            await asyncio.sleep(_METRICS_EVERY_S)

    async def _try(self, kind: str, request: Request, number: int) -> Reply | None:
        began = time.monotonic()
        try:
            reply = await ask(self._url, request, within_s=_GIVE_UP_S)
        except (OSError, TimeoutError) as error:
            reply, text = None, repr(error)
        else:
            text = _text(kind, reply)
        ended = time.monotonic()
        status = NO_ANSWER if reply is None else reply.status
        self.tries.append(Try(kind, ended, ended - began, status, number, text))
        return reply


def _text(kind: str, reply: Reply) -> str:
    if reply.status == 200:
        return str(reply.json()["results"][0]["captions"][0]["text"]) if kind == CAPTION else ""
    return f"retry-after {reply.headers.get('retry-after')}: {reply.body[:300]!r}"
