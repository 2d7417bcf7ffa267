"""Requests to every route: an answer, or a refusal of its form with a stable code; never a 5xx."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st

from models.decoding import STRATEGIES
from serving.args import AppArgs
from serving.compare_schemas import ArmInput, CompareRequest
from serving.errors import HTTP_STATUS, PROBLEM_TYPE
from serving.openai_errors import OPENAI_ROUTES
from serving.openai_schemas import ChatRequest
from serving.schemas import CaptionRequest, ScoreRequest
from tests.fuzz.mutations import originals
from tests.fuzz.support import fuzz, json_values
from tests.serving.support import GatedPipeline, b64, local_app, png

Send = Callable[..., httpx.Response]

_PICTURE = b64(png())
_IMAGE = st.sampled_from(
    [
        {"base64": _PICTURE},
        {"base64": f"data:image/png;base64,{_PICTURE}"},
        {"base64": b64(originals()[0])},
        *(
            {"base64": ""},
            {"base64": "!"},
            {"base64": None},
            {"url": "http://127.0.0.1/"},
            {"url": "", "base64": ""},
            {},
        ),
    ]
)
_MODEL = st.sampled_from(["fake", "fake", "dial", "", "../fake", "a\0b", "a\nb", "a" * 10_000, "\ud800", None, 5])
_DECODE = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from([*STRATEGIES, "", "Greedy", "\ud800" * 3000]),
        "options": st.dictionaries(
            st.sampled_from(["max_tokens", "min_tokens", "beams", "groups", "seed", "temperature", "top_p", "no"]),
            st.integers(-2, 9) | st.sampled_from([2**62, 0.5, None, True, "3", [], {}]),
            max_size=3,
        ),
        "guidance": st.sampled_from([0, 1, 1.5, 10, 11, -1, None, "2"]),
        "rerank": st.sampled_from(["clip_score", None, "", 1]),
    },
)
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "images": st.lists(_IMAGE, max_size=4),
    "model": _MODEL,
    "decode": _DECODE,
    "mix": st.dictionaries(st.text(max_size=5), st.floats(-5, 5), max_size=2),
    "captions": st.lists(st.lists(st.text(max_size=20), max_size=3), max_size=4),
    "arms": st.lists(
        st.fixed_dictionaries({}, optional={"model": _MODEL, "decode": _DECODE, "label": st.text(max_size=70)}),
        max_size=7,
    ),
    "messages": st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "system", "", "assistant"])},
            optional={
                "content": st.none()
                | st.text(max_size=5)
                | st.lists(
                    st.fixed_dictionaries(
                        {"type": st.sampled_from(["image_url", "text", ""])},
                        optional={"image_url": st.just({"url": f"data:image/png;base64,{_PICTURE}"}) | _IMAGE},
                    ),
                    max_size=3,
                )
            },
        ),
        max_size=3,
    ),
    "num_captions": st.integers(-1, 70),
    "n": st.integers(-1, 140),
    "score": st.booleans(),
    "stream": st.booleans(),
}
_SCHEMAS = {
    "/v1/captions": CaptionRequest,
    "/v1/compare": CompareRequest,
    "/v1/score": ScoreRequest,
    "/v1/chat/completions": ChatRequest,
}
assert ArmInput.model_fields.keys() >= {"label", "model", "decode"}


@pytest.fixture(scope="module")
def send() -> Iterator[Send]:
    """Sends a request to the application in this process, whose model is ``fake``."""
    with asyncio.Runner() as runner:
        app = local_app(GatedPipeline(), AppArgs(models=("fake",)))
        client, _ = runner.run(app.__aenter__())
        yield lambda method, path, **more: runner.run(client.request(method, path, **more))
        runner.run(app.__aexit__(None, None, None))


def _check(response: httpx.Response, path: str) -> None:
    assert response.status_code < 500, response.text
    assert response.headers["x-request-id"]
    if response.status_code == 200:
        return
    body = response.json()
    if path in OPENAI_ROUTES:
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert body["error"]["code"] in {*HTTP_STATUS, "model_not_found"}
    else:
        assert response.headers["content-type"] == PROBLEM_TYPE
        assert body["status"] == response.status_code == HTTP_STATUS[body["code"]]
        assert len(body["detail"]) < 5000  # cut to 1000 characters, of which each may have been made visible


def _requests(path: str) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the route's fields: mostly sensible, some of another type, some unknown."""
    fields = {name: _FIELDS.get(name, st.none() | json_values()) for name in _SCHEMAS[path].model_fields}
    needed = {name: fields.pop(name) for name in ("images", "captions", "arms", "messages") if name in fields}
    odd = st.dictionaries(st.sampled_from([*fields, *needed, "no"]), json_values(), max_size=1)
    few = st.dictionaries(st.sampled_from(sorted(fields)), st.none(), max_size=3).flatmap(
        lambda chosen: st.fixed_dictionaries({name: fields[name] for name in chosen})
    )
    return st.tuples(st.fixed_dictionaries(needed), few, st.just({}) | odd).map(lambda all: all[0] | all[1] | all[2])


_ANY = st.sampled_from(sorted(_SCHEMAS)).flatmap(lambda path: st.tuples(st.just(path), _requests(path)))


@fuzz(60, asked=_ANY)
def test_json_requests(send: Send, asked: tuple[str, dict[str, Any]]) -> None:
    path, request = asked
    body = json.dumps(request).encode()
    _check(send("POST", path, content=body, headers={"content-type": "application/json"}), path)


@fuzz(
    150,
    path=st.sampled_from(
        [*_SCHEMAS, "/v1/experiments/tone/votes", "/v1/experiments/a%00b", "/v1/models/%2e%2e", "//", "/%ff"]
    ),
    method=st.sampled_from(["POST", "POST", "GET", "PUT", "HEAD", "OPTIONS", "PATCH", "FOO"]),
    kind=st.sampled_from(
        ["application/json", "image/png", "multipart/form-data; boundary=x", "text/plain", "", "*/*;;=", "é"]
    ),
    encoding=st.sampled_from(["identity", "gzip", ""]),
    body=st.binary(max_size=50) | json_values().map(lambda value: json.dumps(value).encode()),
)
def test_any_method_type_and_body(send: Send, path: str, method: str, kind: str, encoding: str, body: bytes) -> None:
    headers = {"content-type": kind.encode("latin-1"), "content-encoding": encoding.encode()}
    response = send(method, path, content=body, headers=headers)
    if method != "HEAD":
        _check(response, path)


@fuzz(
    150,
    name=st.sampled_from(
        ["decode", "mix", "model", "num_captions", "descriptiveness", "score", "unit", "experiment", "x"]
    ),
    value=st.text(max_size=20) | json_values().map(json.dumps),
    picture=st.sampled_from([png(), b"", b"x", originals()[0]]),
)
def test_raw_pictures_with_a_query(send: Send, name: str, value: str, picture: bytes) -> None:
    value = value.encode("utf-8", "replace").decode()
    more = {"params": {name: value}, "headers": {"content-type": "image/png"}}
    _check(send("POST", "/v1/captions", content=picture, **more), "/v1/captions")


@fuzz(
    150,
    path=st.sampled_from(["/v1/captions", "/v1/compare"]),
    parts=st.lists(
        st.tuples(
            st.sampled_from(["images", "images", "request", "picture", "é", ""]),
            st.sampled_from([png(), b"", b"{}", b'{"arms":[{},{}]}', b'{"model":"nope"}', b"\xff", b"[]"]),
        ),
        max_size=5,
    ),
    cut=st.integers(0, 60),
)
def test_forms(send: Send, path: str, parts: list[tuple[str, bytes]], cut: int) -> None:
    body = b"".join(
        b"--x\r\nContent-Disposition: form-data; name=" + json.dumps(name).encode() + b"\r\n\r\n" + data + b"\r\n"
        for name, data in parts
    )
    whole = body + b"--x--\r\n"
    _check(
        send(
            "POST", path, content=whole[: len(whole) - cut], headers={"content-type": "multipart/form-data; boundary=x"}
        ),
        path,
    )
