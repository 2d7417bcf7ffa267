"""The given request recipes against the running server.

Field names are mapped to this interface. The ``fetch_*`` recipes are in ``test_url_requests.py``, since this server
refuses URLs; ``disconnect_storm`` and ``param_mixed_batch`` are in ``test_concurrency.py``.
"""

import base64
import json
import re
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.serving.conftest import BODY_TIMEOUT_S
from tests.serving.support import b64, png
from tests.support import CASES

RECIPES: dict[str, dict[str, Any]] = {
    recipe["name"]: recipe for recipe in json.loads((CASES / "http.json").read_text(encoding="utf-8"))["cases"]
}
ELSEWHERE = {"disconnect_storm", "param_mixed_batch"} | {name for name in RECIPES if name.startswith("fetch_")}
OPTIONS = {"max_length": "max_tokens", "min_length": "min_tokens", "num_beams": "beams", "temperature": "temperature"}
BOUNDARY = "frontier"


def wanted(name: str) -> set[int]:
    """Statuses that the recipe allows."""
    want = str(RECIPES[name]["want"])
    special = {
        "raw_text/plain": {415},
        "raw_application/octet-stream": {200},
        "data_uri_text_type": {200},
        "multipart_text_part": {200},
        "param_temperature_0": {422},
        "param_max_length_1000000000": {422},
        "get_favicon": {404},
        "header_unicode": {200},
        "slow_body": {408},
    }
    raw_picture = {200} if name.startswith("raw_") and "sniff" in want else None
    return special.get(name) or raw_picture or {int(found) for found in re.findall(r"\d{3}", want)}


def names(*prefixes: str) -> list[str]:
    return [name for name in RECIPES if name.startswith(prefixes) and name not in ELSEWHERE]


def test_every_recipe_is_tested_somewhere() -> None:
    here = names(
        "param_", "b64_", "data_uri_", "url_", "raw_", "multipart_", "json_", "slow_", "header_", "get_", "method_"
    )
    assert set(here) | ELSEWHERE == set(RECIPES)


def check(response: httpx.Response, name: str) -> None:
    assert response.status_code in wanted(name), response.text
    if response.status_code == 200:
        [result] = response.json()["results"]
        assert result["error"] is None
        assert result["captions"][0]["text"]
    else:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["status"] == response.status_code


@pytest.mark.parametrize("name", names("param_", "b64_", "data_uri_"))
def test_json_bodies(client: httpx.Client, name: str) -> None:
    given = dict(RECIPES[name]["json"])
    request: dict[str, Any] = {"images": [{"base64": given.pop("image")}]}
    strategy = "sample" if given.pop("do_sample", False) or "temperature" in given else "beam"
    request["num_captions"] = given.pop("num_return_sequences", 1)
    options = {
        OPTIONS[option]: value for option, value in given.items() if (strategy, option) != ("sample", "num_beams")
    }
    request["decode"] = {"name": strategy, "options": options}
    response = client.post("/v1/captions", json=request)
    check(response, name)
    if name == "param_nrs_sampling":
        assert len(response.json()["results"][0]["captions"]) == 5
    if name == "param_min_gt_max":
        assert "50" in response.json()["detail"] and "20" in response.json()["detail"]


@pytest.mark.parametrize("name", names("url_"))
def test_urls_are_refused(client: httpx.Client, name: str) -> None:
    response = client.post("/v1/captions", json={"images": [{"url": RECIPES[name]["json"]["url"]}]})
    check(response, name)
    assert response.json()["code"] == "url_refused"


@pytest.mark.parametrize("name", names("json_"))
def test_malformed_json(client: httpx.Client, name: str) -> None:
    recipe = RECIPES[name]
    body = json.dumps({"images": []}).encode("utf-16") if "body_encoding" in recipe else recipe["body"].encode()
    response = client.post("/v1/captions", content=body, headers=recipe["headers"])
    check(response, name)
    assert response.json()["code"] == "malformed_json"


@pytest.mark.parametrize("name", [name for name in names("raw_") if name != "raw_declared_huge"])
def test_raw_bodies(client: httpx.Client, case_images: Path, name: str) -> None:
    body = b"" if RECIPES[name].get("body_len") == 0 else (case_images / "palette_trns_index.png").read_bytes()
    check(client.post("/v1/captions", content=body, headers=RECIPES[name]["headers"]), name)


def multipart(disposition: str, content: bytes, *more: str, end: str = "--") -> bytes:
    head = "\r\n".join([f"--{BOUNDARY}", f"Content-Disposition: form-data; {disposition}", *more]).encode()
    return head + b"\r\n\r\n" + content + f"\r\n--{BOUNDARY}{end}\r\n".encode()


PART = 'name="images"; filename="a.png"'
FORMS: dict[str, bytes] = {
    "multipart_cut": multipart(PART, png(), "Content-Type: image/png", end=""),
    "multipart_text_part": multipart(PART, png(), "Content-Type: text/plain"),
    "multipart_no_filename": multipart('name="images"', png(), "Content-Type: image/png"),
    "multipart_big_2mb": multipart(PART, png() + bytes(2_000_000), "Content-Type: image/png"),
    "multipart_rfc5987_filename": multipart("name=\"images\"; filename*=UTF-8''%E7%8C%AB.png", png()),
    "multipart_wrong_field": multipart('name="picture"; filename="a.png"', png(), "Content-Type: image/png"),
    "multipart_no_part_type": multipart(PART, png()),
}


@pytest.mark.parametrize("name", names("multipart_"))
def test_multipart_bodies(client: httpx.Client, name: str) -> None:
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    response = client.post("/v1/captions", content=FORMS[name], headers=headers)
    check(response, name)
    if name == "multipart_wrong_field":
        assert "'images'" in response.json()["detail"]


def test_no_text_of_the_request_or_the_answer_in_headers(client: httpx.Client) -> None:
    files = {"images": ("猫.png", png(), "image/png")}
    response = client.post("/v1/captions", files=files, headers={"x-request-id": "r-1"})
    check(response, "header_unicode")
    same_for_all = {"x-content-type-options", "referrer-policy", "cross-origin-resource-policy", "cache-control"}
    same_for_all |= {"content-security-policy", "date", "server"}
    assert {*response.headers} - same_for_all == {"content-length", "content-type", "x-request-id"}
    assert response.headers["x-request-id"] == response.json()["id"] == "r-1"


def test_method_get(client: httpx.Client) -> None:
    response = client.get("/v1/captions")
    check(response, "method_get")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/favicon.ico", "/robots.txt", "/v1", "/v1/captions/"])
def test_get_favicon(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code in wanted("get_favicon")
    assert client.get("/").status_code == 200


def raw_request(server: str, head: str, first_body_byte: bytes = b"") -> tuple[int, float]:
    """Status of a request of which no more than this is sent, and the seconds it took to come."""
    address = urlsplit(server)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as connection:
        started = time.monotonic()
        connection.sendall(f"POST /v1/captions HTTP/1.1\r\nhost: test\r\n{head}\r\n\r\n".encode() + first_body_byte)
        status = int(connection.recv(4096).split()[1])
        return status, time.monotonic() - started


def test_raw_declared_huge(server: str) -> None:
    status, took_s = raw_request(server, "content-type: image/png\r\ncontent-length: 10000000000")
    assert status in wanted("raw_declared_huge")
    assert took_s < BODY_TIMEOUT_S  # the announcement alone is refused, nothing is waited for


def test_slow_body(server: str) -> None:
    status, took_s = raw_request(server, "content-type: image/png\r\ncontent-length: 1000", b"\x89")
    assert status in wanted("slow_body")
    # the event loop's timers count whole milliseconds from the start of a round: they may ring one or two early
    assert BODY_TIMEOUT_S - 0.01 < took_s < BODY_TIMEOUT_S + 5


def test_base64_of_a_picture_is_given_back_nowhere(client: httpx.Client) -> None:
    packed = b64(png()) * 3
    response = client.post("/v1/captions", json={"images": [{"base64": packed, "url": packed}], "mix": packed})
    assert response.status_code == 422
    assert "images.0" in response.json()["detail"] and "mix" in response.json()["detail"]
    assert packed[:40] not in response.text
    assert base64.b64decode(packed[:8])  # it was base64
