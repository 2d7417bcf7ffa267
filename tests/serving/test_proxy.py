"""The application behind Ray's HTTP proxy, and the hook that the proxy calls."""

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from ray.serve._private.http_util import validate_http_proxy_callback_return
from uvicorn import config
from uvicorn.importer import import_from_string

from benchmarks.serving import running
from serving.head_limits import HeadLimitsProtocol
from serving.proxy import CALLBACK
from tests.serving.conftest import free_port
from tests.serving.nginx import running_nginx
from tests.serving.raw_http import connected
from tests.serving.support import pictures
from tests.support import needs_nginx


def test_ray_takes_what_the_hook_gives_and_uvicorn_finds_the_protocol() -> None:
    before = dict(config.HTTP_PROTOCOLS)
    try:
        assert len(validate_http_proxy_callback_return(import_from_string(CALLBACK)())) == 1
        assert import_from_string(config.HTTP_PROTOCOLS["auto"]) is HeadLimitsProtocol
    finally:
        config.HTTP_PROTOCOLS.update(before)


@pytest.fixture(scope="module")
def proxied() -> Iterator[str]:
    """The address of an application as a cluster has it."""
    port = free_port()
    with running(
        "the proxied application",
        [sys.executable, "-m", "tests.serving.proxied", str(port)],
        f"http://127.0.0.1:{port}",
    ) as url:
        yield url


def test_captions_and_refusals_come_through_it(proxied: str) -> None:
    with httpx.Client(base_url=proxied, timeout=60, trust_env=False) as client:
        [picture] = pictures(1)
        answer = client.post(
            "/v1/captions", content=picture, headers={"content-type": "image/jpeg", "x-request-id": "a-1"}
        )
        assert (answer.status_code, answer.headers.get_list("x-request-id")) == (200, ["a-1"])
        refused = client.post("/v1/captions", content=b"no picture", headers={"content-type": "image/jpeg"})
        assert (refused.status_code, refused.json()["code"]) == (400, "not_an_image")
        assert refused.json()["request_id"] == refused.headers["x-request-id"]
        large = client.post(
            "/v1/captions", content=iter([b"a" * (8 << 20)] * 5), headers={"content-type": "image/jpeg"}
        )
        assert (large.status_code, large.json()["code"]) == (413, "body_too_large")


@needs_nginx
def test_nginx_stands_before_it_as_before_limner_itself(proxied: str, tmp_path: Path) -> None:
    [picture] = pictures(1)
    headers = {"content-type": "image/jpeg", "x-request-id": "a-2"}
    with running_nginx(proxied.removeprefix("http://"), tmp_path) as nginx, nginx.client() as client:
        answer = client.post("/v1/captions", content=picture, headers=headers)
        assert (answer.status_code, answer.headers.get_list("x-request-id")) == (200, ["a-2"])
        large = client.post("/v1/captions", content=iter([b"a" * (8 << 20)] * 5), headers=headers)
        assert (large.status_code, large.json()["code"], large.json()["request_id"]) == (413, "body_too_large", "a-2")
        assert {client.get(path).status_code for path in ("/-/routes", "/-/healthz", "/metrics")} == {403}


def test_it_runs_the_hook(proxied: str) -> None:
    with connected(proxied) as connection:
        answer = connection.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-request-id: \xff<b>\r\n\r\n").answer()
        assert (answer.status, len(answer.headers["x-request-id"])) == (200, 36)
        answer = connection.send(b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n").answer()
        assert (answer.status, connection.ended()) == (400, True)
