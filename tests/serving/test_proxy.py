"""The hook of Ray's proxy."""

import os

from ray.serve._private.http_util import validate_http_proxy_callback_return
from uvicorn import config
from uvicorn.importer import import_from_string

from serving.head_limits import HeadLimitsProtocol
from serving.proxy import CALLBACK
from tests.serving.raw_http import connected


def test_ray_takes_what_the_hook_gives_and_uvicorn_finds_the_protocol() -> None:
    before = dict(config.HTTP_PROTOCOLS)
    try:
        assert len(validate_http_proxy_callback_return(import_from_string(CALLBACK)())) == 1
        assert import_from_string(config.HTTP_PROTOCOLS["auto"]) is HeadLimitsProtocol
    finally:
        config.HTTP_PROTOCOLS.update(before)


def test_the_proxy_runs_it(server: str) -> None:
    assert os.environ["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"] == CALLBACK
    with connected(server) as connection:
        answer = connection.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-request-id: \xff<b>\r\n\r\n").answer()
        assert (answer.status, len(answer.headers["x-request-id"])) == (200, 36)
        answer = connection.send(b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n").answer()
        assert (answer.status, connection.ended()) == (400, True)
