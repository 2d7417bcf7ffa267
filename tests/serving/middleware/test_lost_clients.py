"""What Ray raises where a client left."""

import asyncio
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayError, RayTaskError, TaskCancelledError
from starlette.requests import ClientDisconnect, Request

from serving.middleware.lost_clients import LostClients


def read(*outcomes: Any) -> bytes:
    """What a route reads when ``receive`` has these outcomes."""
    coming, body = list(outcomes), b""

    async def receive() -> Any:
        outcome = coming.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def route(scope: Any, receive: Any, _send: Any) -> None:
        nonlocal body
        body = await Request(scope, receive).body()

    async def send(_message: Any) -> None: ...

    asyncio.run(LostClients(route, errors=RayError)({"type": "http"}, receive, send))
    return body


CANCELLED = RayTaskError("receive_asgi_messages", "traceback", TaskCancelledError())


@pytest.mark.parametrize("error", [TaskCancelledError(), CANCELLED.as_instanceof_cause(), ActorDiedError()])
def test_a_cancelled_call_is_a_client_that_left(error: Exception) -> None:
    with pytest.raises(ClientDisconnect):
        read({"type": "http.request", "body": b"a", "more_body": True}, error)


def test_all_else_passes() -> None:
    assert (
        read({"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"}) == b"ab"
    )
    with pytest.raises(ZeroDivisionError):
        read(ZeroDivisionError())
