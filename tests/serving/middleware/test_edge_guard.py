"""What Ray's proxy gets to see of a request, and how connections with a refused body end."""

from collections.abc import Iterator
from typing import Any

import pytest

from serving.middleware import edge_guard
from serving.middleware.edge_guard import EdgeGuard
from tests.serving.raw_http import ask, connected, post, served


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """``/early`` without a look at the body, any other path after it; the answer is the head that came."""
    while scope["path"] != "/early" and (await receive()).get("more_body"):
        pass
    text = b"\n".join(name + b"=" + value for name, value in scope["headers"])
    headers = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_guard, "_LINGER_S", 0.5)
        patch.setattr(edge_guard, "_LINGER_BYTES", 4 << 20)
        with served(EdgeGuard(answers), lifespan="off") as url:
            yield url


def seen(url: str, *headers: bytes) -> dict[str, str]:
    body = ask(url, post("/", b"x", *headers)).body.decode("latin-1")
    return dict(line.split("=", 1) for line in body.splitlines())


def test_a_usable_id_is_kept_and_any_other_replaced(url: str) -> None:
    assert seen(url, b"X-Request-ID: a.b:1")["x-request-id"] == "a.b:1"
    for odd in (b"<b>", b"\xff\xfe", b"two words", b"", b"a" * 129):
        assert len(seen(url, b"x-request-id: " + odd)["x-request-id"]) == 36
    assert len(seen(url, b"x-request-id: a", b"x-request-id: b")["x-request-id"]) == 36
    assert len(seen(url)["x-request-id"]) == 36


def test_what_steers_ray_is_taken_out(url: str) -> None:
    headers = (
        *(b"x-request-timeout-seconds: 0.001", b"x-request-disconnect-disabled: ?1", b"x-session-id: \xff"),
        *(b"serve_multiplexed_model_id: \xff", b"Serve-Multiplexed-Model-Id: y", b"x_session_id: z"),
    )
    assert set(seen(url, *headers, b"x-own: kept")) == {
        "host",
        "content-type",
        "content-length",
        "x-own",
        "x-request-id",
    }


def test_a_connection_whose_body_was_read_stays(url: str) -> None:
    with connected(url) as connection:
        for _ in range(3):
            answer = connection.send(post("/", b"x")).answer()
            assert "connection" not in answer.headers
        connection.send(post("/", b"x") + post("/", b"y"))
        assert [connection.answer().status for _ in range(2)] == [200, 200]


def test_an_early_answer_is_read_by_who_is_still_sending(url: str) -> None:
    with connected(url) as connection:
        connection.send(post("/early", bytes(3 << 20)))
        answer = connection.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert connection.ended()


def test_whoever_sends_on_without_end_is_cut_off(url: str) -> None:
    with connected(url) as connection:
        connection.send(b"POST /early HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        assert connection.answer().headers["connection"] == "close"
        with pytest.raises(OSError):
            while True:
                connection.send(b"10000\r\n" + bytes(0x10000) + b"\r\n")


def test_whoever_sends_no_more_is_cut_off(url: str) -> None:
    with connected(url) as connection:
        connection.send(post("/early", bytes(100))[:-1])
        assert connection.answer().status == 200
        assert connection.ended()
