"""Connections that end in the ingress itself."""

import asyncio
import socket

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from serving.listener import listening
from tests.serving.conftest import free_port
from tests.serving.processes import APPLICATION, processes
from tests.serving.raw_http import connected


async def _answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{len(await request.body())}")


APP = Starlette(routes=[Route("/", _answer, methods=["GET", "POST"])])


def test_it_answers_as_soon_as_the_block_runs_and_no_longer() -> None:
    port = free_port()

    async def scenario() -> None:
        async with listening(APP, "127.0.0.1", port), httpx.AsyncClient(trust_env=False) as client:
            answers = await asyncio.gather(
                *(client.post(f"http://127.0.0.1:{port}/", content=b"abc") for _ in range(20))
            )
            assert {(answer.status_code, answer.text) for answer in answers} == {(200, "3")}
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(scenario())


def test_it_listens_again_where_connections_of_the_last_one_linger() -> None:
    port = free_port()

    async def once() -> str:
        async with listening(APP, "127.0.0.1", port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            )  # the server closes first: TIME_WAIT
            answer = await reader.read()
            writer.close()
            return answer[:15].decode()

    assert [asyncio.run(once()) for _ in range(3)] == ["HTTP/1.1 200 OK"] * 3


def test_a_port_in_use_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        async def scenario() -> None:
            async with listening(APP, "127.0.0.1", taken.getsockname()[1]):
                pass

        with pytest.raises(OSError, match="in use"):
            asyncio.run(scenario())


def test_limner_serve_has_no_proxy_and_guards_its_connections(server: str) -> None:
    assert set(processes((*APPLICATION, "ProxyActor"))) == set(APPLICATION)
    with connected(server) as connection:
        answer = connection.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-request-id: \xff<b>\r\n\r\n").answer()
        assert (answer.status, len(answer.headers["x-request-id"])) == (200, 36)
        assert "server" not in answer.headers
        answer = connection.send(b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n").answer()
        assert (answer.status, connection.ended()) == (400, True)
