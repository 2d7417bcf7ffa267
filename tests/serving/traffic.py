"""What a server in the open gets to see: good requests of every kind, and bad ones, in a mix that a seed fixes."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from models.catalog import DEFAULT_MODEL
from tests.serving.support import b64, pictures, png
from tests.serving.wire import Request, ask, connect, leave
from tests.support import CASES

LEFT = 0
"""The status that a client sees which hangs up."""

_PICTURES = pictures(24)
_GREEDY = {"name": "greedy"}
_HEAVY = {"name": "beam", "options": {"beams": 16, "max_tokens": 60}}
_CONCISE = "concise"

Act = Callable[[str, random.Random], Awaitable[int]]
"""One visit to the server at an address; the last status that it saw, ``LEFT`` where it hung up."""


@dataclass(frozen=True)
class Kind:
    """One sort of visit: how often it comes relative to others, and the statuses that are right."""

    name: str
    weight: float
    act: Act
    right: frozenset[int]


class Traffic:
    """Visits drawn from kinds; remembers every status that was not right."""

    def __init__(self, kinds: Sequence[Kind], seed: int) -> None:
        self._kinds = kinds
        self._seed = seed
        self._chance = random.Random(seed)
        self.seen: Counter[tuple[str, int]] = Counter()
        """By kind and status."""
        self.wrong: list[str] = []

    def only(self, names: Collection[str]) -> "Traffic":
        """Of some kinds alone, as often each; what is wrong with them is remembered here."""
        fewer = Traffic([replace(kind, weight=1) for kind in self._kinds if kind.name in names], self._seed)
        fewer.seen, fewer.wrong = self.seen, self.wrong
        return fewer

    async def visit(self, url: str, kind: Kind) -> None:
        """One visit of that kind."""
        try:
            status = await kind.act(url, self._chance)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.wrong.append(f"{kind.name}: {error!r}")
            return
        self.seen[kind.name, status] += 1
        if status not in kind.right:
            self.wrong.append(f"{kind.name}: {status}")

    async def run(self, url: str, visits: int, at_once: int) -> None:
        """Draw and make visits, some of them at a time."""
        weights = [kind.weight for kind in self._kinds]
        drawn: Iterator[Kind] = iter(self._chance.choices(self._kinds, weights, k=visits))

        async def visitor() -> None:
            for kind in drawn:
                await self.visit(url, kind)

        await asyncio.gather(*(visitor() for _ in range(at_once)))

    async def each(self, url: str, times: int = 1) -> None:
        """Visits of every kind, one after the other."""
        for kind in self._kinds:
            for _ in range(times):
                await self.visit(url, kind)


def kinds(models: Sequence[str], experiment: str | None = None) -> list[Kind]:
    """Of all that may come to a server of these models."""
    found = [*_captions(), *_other_routes(), *_bad(), *_leavers(), *_bad_pictures()]
    found += _large_and_slow()
    if DEFAULT_MODEL in models:
        found += _dial()
    if experiment is not None:
        found += [
            Kind("vote", 6, _voting(experiment), frozenset({200})),
            Kind("stray vote", 0.3, _sent(_vote(experiment, "never", "a")), frozenset({404})),
            Kind("results", 1, _sent(Request(f"/v1/experiments/{experiment}", method="GET")), frozenset({200})),
        ]
    return found


def _sent(*requests: Request) -> Act:
    """One of the requests."""

    async def act(url: str, chance: random.Random) -> int:
        return (await ask(url, chance.choice(requests))).status

    return act


def _json(path: str, **fields: Any) -> list[Request]:
    """The same of every picture."""
    return [Request.of_json(path, {"images": [{"base64": b64(data)}], **fields}) for data in _PICTURES]


def _raw(data: bytes, query: str = "", kind: str = "image/png") -> Request:
    return Request(f"/v1/captions{query}", data, kind)


def multipart(images: Sequence[bytes], asked: Any) -> Request:
    """A form of pictures and options."""
    parts = [(f'name="images"; filename="{number}.png"', data) for number, data in enumerate(images)]
    parts.append(('name="request"', json.dumps(asked).encode()))
    body = b"".join(
        b"--edge\r\ncontent-disposition: form-data; " + named.encode() + b"\r\n\r\n" + data + b"\r\n"
        for named, data in parts
    )
    return Request("/v1/captions", body + b"--edge--\r\n", "multipart/form-data; boundary=edge")


def _captions() -> list[Kind]:
    fake, ok = {"model": "fake", "score": False}, frozenset({200})
    beam = {"name": "beam", "options": {"beams": 4}}
    sample = {"name": "sample", "options": {"temperature": 1.5}}
    several = [{"images": [{"base64": b64(data)} for data in _PICTURES[at : at + 5]], **fake} for at in range(12)]
    one_bad = [{**asked, "images": [{"base64": b64(b"GIF89a")}, *asked["images"]]} for asked in several]
    raw_query = f"?model=fake&score=false&decode={quote(json.dumps(beam))}"
    forms = [multipart(_PICTURES[at : at + 2], {**fake, "num_captions": 2}) for at in range(20)]
    return [
        Kind("greedy", 10, _sent(*_json("/v1/captions", **fake, decode=_GREEDY)), ok),
        Kind("beams", 6, _sent(*_json("/v1/captions", **fake, decode=beam, num_captions=3)), ok),
        Kind("sample", 4, _sent(*_json("/v1/captions", **fake, decode=sample)), ok),
        Kind("several", 4, _sent(*(Request.of_json("/v1/captions", asked) for asked in several)), ok),
        Kind("one bad of six", 3, _sent(*(Request.of_json("/v1/captions", asked) for asked in one_bad)), ok),
        Kind("raw", 8, _sent(*(_raw(data, raw_query) for data in _PICTURES)), ok),
        Kind("form", 6, _sent(*forms), ok),
        Kind("scored caption", 1.5, _sent(*_json("/v1/captions", model="fake", score=True)), ok),
    ]


def _other_routes() -> list[Kind]:
    ok = frozenset({200})
    arms = [{"model": "fake"}, {"model": "fake", "decode": {"name": "beam", "options": {"beams": 2}}}]
    url = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64(_PICTURES[0])}"}}]
    chat = {"model": "fake", "messages": [{"role": "user", "content": url}], "score": False}
    pages = ("/", "/docs", "/openapi.json", "/v1/models", "/v1/experiments", "/healthz", "/readyz", "/metrics")
    return [
        Kind("score", 1.5, _sent(*_json("/v1/score", captions=[["a red dog", "a boat"]], model="fake")), ok),
        Kind("compare", 4, _sent(*_json("/v1/compare", arms=arms, score=False)), ok),
        Kind("chat", 4, _sent(Request.of_json("/v1/chat/completions", chat)), ok),
        Kind("chat stream", 3, _sent(Request.of_json("/v1/chat/completions", {**chat, "stream": True})), ok),
        Kind("pages", 5, _sent(*(Request(path, method="GET") for path in pages)), ok),
    ]


def _dial() -> list[Kind]:
    """Few: they are what costs. The points are few as well, so that the mixes are soon made."""
    ok = frozenset({200})
    at = [each for d in (0, 0.4, 1) for each in _json("/v1/captions", descriptiveness=d, model=DEFAULT_MODEL)[:4]]
    mixed = _json("/v1/captions", model=DEFAULT_MODEL, mix={"smile": 0.5}, score=False, decode=_GREEDY)
    words = _json("/v1/captions", model=DEFAULT_MODEL, target_words=12, score=False)
    fallback = _json("/v1/captions", model=DEFAULT_MODEL, min_clip_score=2.0)
    return [
        Kind("dial", 1.5, _sent(*at), ok),
        Kind("mix", 1, _sent(*mixed), ok),
        Kind("words", 0.5, _sent(*words), ok),
        Kind("fallback", 0.5, _sent(*fallback), ok),
        Kind("concise", 1, _sent(*_json("/v1/captions", model=_CONCISE, score=False)), ok),
    ]


def _bad() -> list[Kind]:
    path, good = "/v1/captions", b64(_PICTURES[0])
    images = [{"base64": good}]
    kinds: dict[str, tuple[Request, int]] = {
        "no JSON": (Request(path, b'{"images": [', "application/json"), 400),
        "twice a key": (Request(path, b'{"images": [], "images": []}', "application/json"), 400),
        "NaN": (Request(path, b'{"images": [], "descriptiveness": NaN}', "application/json"), 400),
        "no base64": (Request.of_json(path, {"images": [{"base64": "%%%"}]}), 400),
        "no image": (Request.of_json(path, {"images": []}), 422),
        "unknown field": (Request.of_json(path, {"images": images, "colour": "red"}), 422),
        "unknown strategy": (Request.of_json(path, {"images": images, "decode": {"name": "magic"}}), 422),
        "unknown model": (Request.of_json(path, {"images": images, "model": "none"}), 404),
        "unknown experiment": (Request.of_json(path, {"images": images, "experiment": "no", "unit": "u"}), 404),
        "too many images": (Request.of_json(path, {"images": images * 33}), 422),
        "huge number": (Request.of_json(path, {"images": images, "num_captions": 10**400}), 400),
        "no spectrum": (Request.of_json(path, {"images": images, "model": "fake", "descriptiveness": 0.5}), 422),
        "by URL": (Request.of_json(path, {"images": [{"url": "http://169.254.169.254/latest"}]}), 403),
        "form without end": (Request(path, b"--edge\r\n", "multipart/form-data; boundary=edge"), 400),
        "wrong type": (Request(path, b"a,b", "text/csv"), 415),
        "zipped": (Request(path, b"\x1f\x8b", "application/json", headers={"content-encoding": "gzip"}), 415),
        "wrong method": (Request(path, method="GET"), 405),
        "wrong path": (Request("/v2/captions", b"x", "image/png"), 404),
        "chat without picture": (Request.of_json("/v1/chat/completions", {"messages": []}), 400),
        "scores for nothing": (Request.of_json("/v1/score", {"images": images, "captions": []}), 422),
    }
    return [Kind(name, 1, _sent(request), frozenset({status})) for name, (request, status) in kinds.items()]


def _bad_pictures() -> list[Kind]:
    status = {
        "truncated.webp": 400,
        "bad_idat.png": 400,
        "json_error.png": 400,
        "html_error_page.jpg": 400,
        "drawing_svg.png": 415,
        "page.pdf": 415,
        "bomb_sof_65500.jpg": 413,
        "bomb_65535.gif": 413,
        "animated_600_frames.gif": 200,
        "exif_garbage.jpg": 200,
        "rgba_noise_under_alpha.webp": 200,
        "size_1x1.png": 200,
    }
    return [
        Kind(
            name,
            0.7,
            _sent(_raw((CASES / "images" / name).read_bytes(), "?model=fake&score=false")),
            frozenset({right}),
        )
        for name, right in status.items()
    ]


def _large_and_slow() -> list[Kind]:
    too_large = _raw(bytes((32 << 20) + 1))
    photo = _raw(png(size=(1500, 1500)) + bytes(3 << 20), "?model=fake&score=false")

    async def far_too_large(url: str, _chance: random.Random) -> int:
        """Answered before all is sent: whether a client still gets to read the answer is up to its TCP."""
        with suppress(ConnectionError):
            return (await ask(url, too_large)).status
        return LEFT

    async def announced(url: str, _chance: random.Random) -> int:
        """Only the head, with a length that is too large."""
        reader, writer = await connect(url)
        writer.write(too_large.head())
        try:
            async with asyncio.timeout(60):
                return int((await reader.readline()).split()[1])
        finally:
            writer.transport.abort()

    async def slow(url: str, _chance: random.Random) -> int:
        """The body never ends."""
        reader, writer = await connect(url)
        writer.write(photo.head() + b"x")
        try:
            async with asyncio.timeout(60):
                return int((await reader.readline()).split()[1])
        finally:
            writer.transport.abort()

    return [
        Kind("3 MB", 0.5, _sent(photo), frozenset({200})),
        Kind("too large", 0.1, far_too_large, frozenset({413, LEFT})),
        Kind("announced too large", 1, announced, frozenset({413})),
        Kind("slow sender", 0.3, slow, frozenset({408})),
    ]


def _leavers() -> list[Kind]:
    heavy = Request.of_json(
        "/v1/captions",
        {"images": [{"base64": b64(data)} for data in _PICTURES[:4]], "model": "fake", "decode": _HEAVY},
    )
    quick, right = _json("/v1/captions", model="fake", score=False)[0], frozenset({LEFT})

    def leaving(request: Request, share: float, longest_s: float) -> Act:
        async def act(url: str, chance: random.Random) -> int:
            with suppress(ConnectionError):
                sent = int(len(request.body) * share)
                await leave(url, request, sent=sent, after_s=chance.uniform(0, longest_s))
            return LEFT

        return act

    return [
        Kind("left in the body", 2, leaving(quick, 0.5, 0.02), right),
        Kind("left at once", 2, leaving(quick, 1, 0), right),
        Kind("left in the queue", 2, leaving(heavy, 1, 0.05), right),
        Kind("left in the pass", 2, leaving(heavy, 1, 0.3), right),
    ]


def _vote(experiment: str, request_id: str, arm: str, value: int = 1) -> Request:
    asked = {"request_id": request_id, "index": 0, "arm": arm, "value": value}
    return Request.of_json(f"/v1/experiments/{experiment}/votes", asked)


def _voting(experiment: str) -> Act:
    """A caption in an experiment, and a vote on it."""

    async def act(url: str, chance: random.Random) -> int:
        asked = {"images": [{"base64": b64(chance.choice(_PICTURES))}], "model": "fake", "decode": _GREEDY}
        unit = f"u{chance.randrange(100)}"
        answer = await ask(url, Request.of_json("/v1/captions", {**asked, "experiment": experiment, "unit": unit}))
        if answer.status != 200:
            return answer.status
        got = answer.json()
        arm = got["results"][0]["experiment"]["arm"]
        return (await ask(url, _vote(experiment, got["id"], arm, chance.choice((1, -1))))).status

    return act
