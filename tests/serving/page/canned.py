"""The real page over answers that are made up: what the server would say of two models, four arms, two experiments."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from serving.args import AppArgs
from serving.errors import problem_response
from serving.multipart import parse_multipart
from serving.routes.index import router

CAPTIONS = [
    "a man takes a picture",
    "a man in a coat takes a picture",
    "a man in a dark coat takes a picture outside",
    "a man in a dark coat takes a picture with a camera on a tripod",
    "a man in a dark coat takes a picture with an old camera on a tripod in a field",
]
SPECTRUM = {
    "default": 0.35,
    "calibration": None,
    "grid": [
        {
            "descriptiveness": round(step / 20, 2),
            "coefficients": {},
            "expected_words": 8.6 + 4.9 * (step / 20) ** 1.3,
            "measures": {"clip_score": 0.74 + 0.05 * step / 20},
        }
        for step in range(21)
    ],
}
EXPERIMENTS = {
    "autumn": {
        "name": "autumn",
        "score_share": 1.0,
        "arms": [
            {"label": "short", "weight": 1.0, "model": "dial", "descriptiveness": 0.0},
            {"label": "long", "weight": 2.0, "model": "dial", "descriptiveness": 1.0},
        ],
    },
    "young": {"name": "young", "arms": [{"label": "a", "weight": 1.0}, {"label": "b", "weight": 1.0}]},
}
RESULTS: dict[str, dict[str, Any]] = {
    "autumn": {
        "min_units": 100,
        "arms": [
            {
                **{"label": "short", "units": 812, "images": 1624, "scored_units": 800},
                **{"clip_score": 0.741, "clip_score_interval": [0.732, 0.75], "words": 8.7},
                **{"latency_p50_ms": 88.0, "latency_p95_ms": 190.0, "votes_up": 61, "votes_down": 48, "missing": 3},
            },
            {
                **{"label": "long", "units": 1610, "images": 3240, "scored_units": 1600},
                **{"clip_score": 0.783, "clip_score_interval": [0.777, 0.789], "words": 13.4},
                **{"latency_p50_ms": 104.0, "latency_p95_ms": 232.0, "votes_up": 198, "votes_down": 71, "missing": 0},
            },
        ],
        "pairs": [
            {
                **{"a": "short", "b": "long", "effect": -0.042, "welch_interval": [-0.053, -0.031]},
                **{"confidence_sequence": [-0.062, -0.022], "verdict": "b better"},
            }
        ],
    },
    "young": {
        "arms": [{"label": "a", "units": 2, "images": 2, "clip_score": None}, {"label": "b"}],
        "pairs": [{"a": "a", "b": "b", "effect": None, "verdict": "undecided"}],
    },
}
METRICS = """# HELP limner_captions_total captions written
limner_captions_total{{model="dial",strategy="beam"}} {captions}
limner_request_duration_seconds_bucket{{route="/v1/captions",status="200",le="0.1"}} {captions}
limner_request_duration_seconds_bucket{{route="/v1/captions",status="200",le="0.25"}} {captions}
limner_request_duration_seconds_bucket{{route="/v1/captions",status="200",le="+Inf"}} {captions}
limner_request_duration_seconds_bucket{{route="/v1/captions",status="429",le="0.1"}} 100000
limner_request_duration_seconds_bucket{{route="/v1/captions",status="429",le="0.25"}} 100000
limner_request_duration_seconds_bucket{{route="/v1/captions",status="429",le="+Inf"}} 100000
limner_queue_images 3.0
limner_queue_limit_images 256.0
limner_clip_score_count{{model="dial"}} 40
limner_clip_score_sum{{model="dial"}} 31.2
limner_clip_score_count{{model="concise"}} 10
limner_clip_score_sum{{model="concise"}} 5.0
limner_clip_score_drift_alarm{{model="concise"}} 1.0
"""


@dataclass
class Canned:
    """What was asked, what goes wrong next, and which experiments run."""

    url: str = ""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    troubles: list[tuple[str, str]] = field(default_factory=list)
    """Path and code of refusals to come."""

    key: str | None = None
    """What every question must bring."""

    experiments: bool = True
    scrapes: int = 0
    held: float | None = None
    """Captions at this descriptiveness wait for the gate."""

    gate: threading.Event = field(default_factory=threading.Event)

    def of(self, path: str) -> list[dict[str, Any]]:
        """The requests to one path."""
        return [body for where, body in self.asked if where == path]

    def forget(self) -> None:
        """As new."""
        self.asked.clear()
        self.troubles.clear()
        self.experiments = True
        self.key = None
        self.held = None
        self.gate.clear()


def caption(descriptiveness: float | None, count: int = 1) -> dict[str, Any]:
    """A result as ``/v1/captions`` has it; more words further along the dial."""
    place = round(4 * (descriptiveness or 0.0))
    texts = [CAPTIONS[place], "a man stands beside a tripod", "a photographer at work"][:count]
    return {
        "index": 0,
        "captions": [
            {
                "text": text,
                "logprob": -0.7,
                "tokens": 12,
                "finish_reason": "stop",
                "clip_score": score,
                "scorer": "scorer",
            }
            for text, score in zip(texts, (0.7 + 0.02 * place, 0.66, 0.61), strict=False)
        ],
        "descriptiveness": descriptiveness,
        "expected_words": None
        if descriptiveness is None
        else SPECTRUM["grid"][round(20 * descriptiveness)]["expected_words"],  # type: ignore[index]
        "fallback": False,
        "experiment": None,
        "notes": [],
        "error": None,
    }


def build(canned: Canned) -> FastAPI:
    """The application."""
    app = FastAPI()
    app.state.services = SimpleNamespace(args=AppArgs())
    app.include_router(router)

    @app.middleware("http")
    async def keys(request: Request, call_next: Any) -> Any:
        closed = request.url.path.startswith(("/v1/", "/metrics"))
        if closed and canned.key is not None and request.headers.get("x-api-key") != canned.key:
            return problem_response("unauthorized", "a key is needed", "r")
        return await call_next(request)

    def refused(path: str) -> JSONResponse | None:
        for trouble in canned.troubles:
            if trouble[0] == path:
                canned.troubles.remove(trouble)
                return problem_response(trouble[1], '{"raw": "detail"}', "r")
        return None

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        described = {"dial": "Turns from concise to descriptive.", "concise": "Short captions, as people write them."}
        return {
            "data": [
                {
                    "id": name,
                    "default": name == "dial",
                    "description": text,
                    "spectrum": SPECTRUM if name == "dial" else None,
                }
                for name, text in described.items()
            ]
        }

    @app.post("/v1/captions")
    async def captions(request: Request) -> Any:
        parts = {
            part.name: part.data
            for part in parse_multipart(request.headers["content-type"], await request.body(), max_parts=3)
        }
        asked = json.loads(parts["request"])
        canned.asked.append(("/v1/captions", {**asked, "bytes": len(parts["images"])}))
        if (problem := refused("/v1/captions")) is not None:
            return problem
        if canned.held is not None and canned.held == asked.get("descriptiveness"):
            await asyncio.to_thread(canned.gate.wait, 20)
        result = caption(asked.get("descriptiveness"), asked["num_captions"])
        if "experiment" in asked:
            result["experiment"] = {"name": asked["experiment"], "arm": "long"}
        timing = {"queue": 0.4, "encode": 21.0, "decode": 58.0, "score": 9.1, "total": 91.2}
        return {"id": f"request-{len(canned.asked)}", "model": "dial", "results": [result], "timing_ms": timing}

    @app.post("/v1/compare")
    async def compare(request: Request) -> Any:
        asked = await request.json()
        canned.asked.append(("/v1/compare", asked))
        if (problem := refused("/v1/compare")) is not None:
            return problem
        arms = [
            {"label": arm["label"], "model": arm["model"], "results": [caption(arm.get("descriptiveness"))]}
            for arm in asked["arms"]
        ]
        return {"id": f"request-{len(canned.asked)}", "arms": arms, "timing_ms": {"total": 200.0}}

    @app.get("/v1/experiments")
    async def experiments() -> Any:
        if not canned.experiments:
            return problem_response("not_found", "no such route", "r")
        return {"data": list(EXPERIMENTS.values())}

    @app.get("/v1/experiments/{name}")
    async def results(name: str) -> dict[str, Any]:
        return {"experiment": EXPERIMENTS[name], "results": RESULTS[name]}

    @app.post("/v1/experiments/{name}/votes", status_code=201)
    async def vote(name: str, request: Request) -> Any:
        canned.asked.append((f"/v1/experiments/{name}/votes", await request.json()))
        return refused(f"/v1/experiments/{name}/votes") or {"status": "ok"}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        canned.scrapes += 1
        return PlainTextResponse(METRICS.format(captions=100 + 10 * canned.scrapes))

    return app


@contextmanager
def served(port: int) -> Iterator[Canned]:
    """The application behind a port of this machine."""
    canned = Canned(url=f"http://127.0.0.1:{port}")
    server = uvicorn.Server(uvicorn.Config(build(canned), port=port, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    give_up = time.monotonic() + 30
    while not server.started and time.monotonic() < give_up:
        time.sleep(0.02)
    yield canned
    server.should_exit = True
    thread.join(10)
