"""Requests that no client library sends, over the running server: each is answered, none is believed."""

import json
from typing import Any

import httpx
import pytest

from tests.serving.raw_http import Answer, ask, connected, post
from tests.serving.support import b64, png

PNG = {"content-type": "image/png"}
JSON = {"content-type": "application/json"}
LIMIT = 32 << 20


def check_problem(answer: Answer, status: int, code: str) -> None:
    body = json.loads(answer.body)
    assert (answer.status, body["status"], body["code"]) == (status, status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["request_id"] == answer.headers["x-request-id"]


def test_the_id_in_headers_and_bodies_is_one_and_clean(server: str) -> None:
    for given in (b"<b>", b"\xff\xfe", b"a b", b"a" * 200, b'","x":"'):
        answer = ask(server, post("/v1/captions", png(), b"x-request-id: " + given))
        assert answer.status == 200
        assert answer.headers["x-request-id"] == json.loads(answer.body)["id"]
        assert len(answer.headers["x-request-id"]) == 36
    assert ask(server, post("/v1/captions", png(), b"x-request-id: r-1")).headers["x-request-id"] == "r-1"


def test_headers_that_steer_ray_have_no_say(server: str) -> None:
    headers = (b"x-request-timeout-seconds: 0.000001", b"serve_multiplexed_model_id: \xff", b"x-session-id: \xff")
    assert ask(server, post("/v1/captions", png(), *headers)).status == 200


def test_an_announced_size_is_refused_before_it_is_sent(server: str) -> None:
    head = b"POST /v1/captions HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ncontent-length: %d\r\n" % (LIMIT + 1)
    for extra in (b"", b"expect: 100-continue\r\n"):
        with connected(server) as connection:
            answer = connection.send(head, extra, b"\r\n").answer()
            while answer.status == 100:
                answer = connection.answer()
            check_problem(answer, 413, "body_too_large")
            assert answer.headers["connection"] == "close" and connection.ended()


def test_whoever_still_sends_a_large_body_can_read_its_refusal(server: str) -> None:
    with connected(server) as connection:
        connection.send(post("/v1/captions", bytes(LIMIT + (4 << 20))))
        check_problem(connection.answer(), 413, "body_too_large")


def test_chunks_without_an_end_are_cut_off(server: str) -> None:
    head = b"POST /v1/captions HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    with connected(server) as connection:
        connection.send(head)
        with pytest.raises(OSError):
            while True:
                connection.send(chunk)


def test_a_body_that_stops_coming_is_408(server: str) -> None:
    with connected(server) as connection:
        connection.send(post("/v1/captions", png())[:-1])
        answer = connection.answer()
        check_problem(answer, 408, "body_timeout")
        assert answer.headers["connection"] == "close" and connection.ended()


def test_a_client_that_asks_to_go_on_is_told_to(server: str) -> None:
    body = png()
    with connected(server) as connection:
        whole = post("/v1/captions", body, b"expect: 100-continue")
        assert connection.send(whole[: -len(body)]).answer().status == 100
        assert connection.send(body).answer().status == 200


def test_requests_in_a_row_on_one_connection(server: str) -> None:
    good, bad = post("/v1/captions", png()), post("/v1/captions", b"no picture")
    with connected(server) as connection:
        connection.send(good + bad + good + b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert [connection.answer().status for _ in range(4)] == [200, 400, 200, 200]
        assert connection.send(good).answer().status == 200


@pytest.mark.parametrize(
    "fields",
    [
        b"content-length: 3\r\ntransfer-encoding: chunked\r\n",
        b"content-length: 3\r\ncontent-length: 4\r\n",
        *(b"content-length: %s\r\n" % size for size in (b"-1", b"+3", b"3 3", b"0x3", b"9" * 30)),
        b"transfer-encoding: chunked, gzip\r\n",
        b"bad name: x\r\n",
        b"x\x00y: z\r\n",
    ],
)
def test_heads_that_could_be_read_in_two_ways_are_not_read(server: str, fields: bytes) -> None:
    """What a proxy in front understands otherwise would be smuggled past it."""
    with connected(server) as connection:
        connection.send(b"POST /v1/captions HTTP/1.1\r\nhost: x\r\n" + fields + b"\r\nabc")
        answer = connection.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert connection.ended()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        *((f"{method} /v1/captions", 405) for method in ("GET", "HEAD", "OPTIONS", "TRACE", "DELETE")),
        *((f"GET {path}", 404) for path in ("/%ff%00%0d%0ax:%20y", "//v1/models", "/v1/models/", "/page/..%2fcli.py")),
        *((f"GET {path}", 404) for path in ("/page/../../cli.py", "/v1/experiments/%F0%9F%92%A9%ED%A0%80%00")),
        *((line, 400) for line in ("BREW /", "CONNECT x:1", "GET nowhere", "GET /\u00e9", "PRI *")),
        ("GET /%76%31/models", 200),
        ("HEAD /", 200),
    ],
)
def test_methods_and_paths(server: str, line: str, status: int) -> None:
    with connected(server) as connection:
        connection.send(f"{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        head = connection._file.readline()
        assert int(head.split()[1]) == status, head


@pytest.mark.parametrize("text", ["\ud800", "\0", "\U0001f4a9", "\u202e", "\r\nx: y", "x" * 300])
def test_text_of_any_kind_in_every_field(client: httpx.Client, text: str) -> None:
    image, word = {"base64": b64(png())}, text
    chat = {
        "role": "user",
        "content": [{"type": "text", "text": word}, {"type": "image_url", "image_url": {"url": word}}],
    }
    bodies: list[tuple[str, Any]] = [
        *(("captions", {"images": [image], name: word}) for name in ("model", "unit", word)),
        ("captions", {"images": [image], "experiment": "tone", "unit": word}),
        ("captions", {"images": [image], "experiment": word, "unit": "u"}),
        ("captions", {"images": [image], "mix": {word: 1}}),
        *(("captions", {"images": [{kind: word}]}) for kind in ("base64", "url", word)),
        *(
            ("captions", {"images": [image], "decode": decode})
            for decode in ({"name": word}, {"options": {word: word}})
        ),
        ("compare", {"images": [image], "arms": [{"label": word}, {"label": "b", "model": word}]}),
        ("compare", {"images": [image], "arms": [{"label": word}, {"label": "b"}]}),
        ("score", {"images": [image], "captions": [[word]]}),
        ("chat/completions", {"model": "fake", "user": word, "messages": [chat]}),
        ("experiments/tone/votes", {"request_id": word, "index": 0, "arm": word, "value": 1}),
        ("experiments/tone/votes", {"request_id": "r", "index": 0, "arm": word, "value": 1}),
    ]
    for route, body in bodies:
        answer = client.post(f"/v1/{route}", content=json.dumps(body), headers=JSON)
        assert answer.status_code < 500, (route, body, answer.text)
        answer.json()
        assert all("\U0001f4a9" not in value and "\u202e" not in value for value in answer.headers.values())


@pytest.mark.parametrize(
    "name", ["num_captions", "descriptiveness", "target_words", "min_clip_score", "score", "model"]
)
def test_numbers_that_are_none(client: httpx.Client, name: str) -> None:
    numbers = ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "9" * 19, "-9", "true", "[]", "{}", "[1e400]")
    for number in numbers:
        body = json.dumps({"images": [{"base64": b64(png())}]})[:-1] + f', "{name}": {number}}}'
        answer = client.post("/v1/captions", content=body, headers=JSON)
        refused = 400 <= answer.status_code < 500 and answer.json()["code"] in (
            *("malformed_json", "invalid_request", "unsupported_option", "unknown_model"),
        )
        assert refused or (name, number) == ("score", "true"), (number, answer.text)


@pytest.mark.parametrize(
    "body",
    [
        *(b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900),
        *(b'{"images": [], "images": []}', b'{"images": [{"base64": "", "base64": ""}]}'),
        *(
            b"\xef\xbb\xbf{}",
            b'{"model": "\xff"}',
            b'{"model": "\xc0\x80"}',
            "{}".encode("utf-16"),
            b"{}{}",
            b"{'a': 1}",
        ),
        *(b"", b"null", b"[]", b"1", b'"x"', b'{"images": null}', b'{"images": {"0": 1}}'),
    ],
)
def test_json_that_is_none_or_not_as_it_should_be(client: httpx.Client, body: bytes) -> None:
    for route in ("captions", "compare", "score", "chat/completions", "experiments/tone/votes"):
        answer = client.post(f"/v1/{route}", content=body, headers=JSON)
        assert answer.status_code in (400, 422), (route, answer.text)


def test_content_decides_not_what_is_said_of_it(client: httpx.Client) -> None:
    for kind in ("image/jpeg", "IMAGE/PNG; charset=utf-8", "application/octet-stream", "image/svg+xml"):
        answer = client.post("/v1/captions", content=png(), headers={"content-type": kind})
        assert answer.status_code == 200, kind
    files = {"images": ("../../etc/passwd\0.exe", png(), "text/html")}
    assert client.post("/v1/captions", files=files).status_code == 200


def test_parts_of_2_mib_pass_and_base64_in_a_form_is_told_apart(client: httpx.Client) -> None:
    large = png() + bytes(2 << 20)  # trailing bytes are no fault
    for part in (("a.png", large, "image/png"), (None, large)):
        assert client.post("/v1/captions", files={"images": part}).status_code == 200
    for text in (b64(large), f"data:image/png;base64,{b64(png())}"):
        for part in ((None, text.encode()), ("a.txt", text.encode(), "text/plain")):
            problem = client.post("/v1/captions", files={"images": part}).json()
            assert (problem["code"], "base64 in a JSON body" in problem["detail"]) == ("not_an_image", True)
    problem = client.post("/v1/captions", content=b64(png()), headers=PNG).json()
    assert "base64 text" in problem["detail"]
    form = {"request": (None, json.dumps({"images": [{"base64": b64(png())}]})), "images": ("a.png", png())}
    assert "images: there is no such field" in client.post("/v1/captions", files=form).json()["detail"]
