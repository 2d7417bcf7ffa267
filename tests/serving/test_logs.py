"""The log: one line a record, the fields of a request, and nothing that a client wrote."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.api_keys import ApiKeys, read_api_keys
from serving.args import AppArgs, KeyArgs, LogArgs
from serving.logs import JsonLines, access_fields, access_logger, start_logging
from tests.serving.support import GatedPipeline, b64, local_app, png

KEY = "the-key-of-alice-1"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("serving", "models")]
    kept = [(logger, logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, handlers, propagate, level in kept:
        for handler in logger.handlers:
            handler.close()
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
    access_logger.disabled = False


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "limner_test.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def logged(folder: Path, *requests: dict[str, Any], keys: bool = False) -> list[dict[str, Any]]:
    """What these requests leave in the log."""

    async def scenario() -> None:
        found = ApiKeys(read_api_keys(KeyArgs(env="K"), {"K": f"alice: {KEY}"})) if keys else None
        async with local_app(GatedPipeline(), AppArgs(models=("fake",)), keys=found) as (client, _):
            for request in requests:
                await client.request(**{"method": "POST", "url": "/v1/captions", **request})

    start_logging(LogArgs(folder=folder), "test")
    asyncio.run(scenario())
    return lines(folder)


def test_a_line_for_every_request(tmp_path: Path) -> None:
    images = [{"base64": b64(png())}] * 2
    [line] = logged(
        tmp_path, {"json": {"images": images}, "headers": {"x-request-id": "r-1", "x-api-key": KEY}}, keys=True
    )
    assert line.pop("time").endswith("+00:00") and line.pop("ms") > 0
    assert line == {
        "level": "INFO",
        "logger": "serving.access",
        "message": "request",
        "request_id": "r-1",
        "method": "POST",
        "route": "/v1/captions",
        "status": 200,
        "images": 2,
        "model": "fake",
        "client": "alice",
    }


def test_refusals_have_their_code_and_probes_that_went_well_no_line(tmp_path: Path) -> None:
    found = logged(
        tmp_path,
        *({"method": "GET", "url": url} for url in ("/healthz", "/readyz", "/metrics", "/nowhere", "/v1/models")),
        {"content": b"{"},
        {"content": b"x", "headers": {"content-type": "image/png"}},
    )
    assert [(line["route"], line["status"], line.get("error")) for line in found] == [
        ("unmatched", 404, "not_found"),
        ("/v1/models", 200, None),
        ("/v1/captions", 415, "unsupported_media_type"),
        ("/v1/captions", 400, "not_an_image"),
    ]


def test_who_is_refused_for_want_of_a_key_is_known_by_the_address_and_what_was_asked(tmp_path: Path) -> None:
    found = logged(
        tmp_path,
        {"content": png()},
        {"url": "/v1/experiments/evil/votes", "headers": {"x-api-key": KEY + "x"}},
        {"method": "GET", "url": "/nowhere"},
        {"content": b"{", "headers": {"x-api-key": KEY}},
        keys=True,
    )
    assert [(line["route"], line["status"], line.get("address")) for line in found] == [
        ("/v1/captions", 401, "127.0.0.1"),
        ("/v1/experiments/{name}/votes", 401, "127.0.0.1"),
        ("unmatched", 401, "127.0.0.1"),
        ("/v1/captions", 415, None),
    ]


def test_nothing_that_clients_write_is_in_it(tmp_path: Path) -> None:
    evil = "evil\u2028\x85\xff"
    requests: list[dict[str, Any]] = [
        {"url": "/v1/captions?secret=evil", "content": png(), "headers": {"content-type": "image/png"}},
        {"method": "GET", "url": "/evil%0a{}%00"},
        {"json": {"images": [{"base64": b64(png())}], "model": evil, "experiment": evil}},
        {"headers": [(b"x-request-id", b'evil", "level": "x\xff')]},
        {"headers": {"x-api-key": "evil-key", "user-agent": "evil"}},
        {"method": "EVIL", "url": "/v1/captions"},
    ]
    logged(tmp_path, *requests)
    text = (tmp_path / "limner_test.jsonl").read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(requests)
    assert "evil" not in text.lower()


def test_an_unexpected_failure_is_told_with_its_id_on_one_line(tmp_path: Path) -> None:
    async def scenario() -> httpx.Response:
        async with local_app(GatedPipeline(), AppArgs(models=("fake",))) as (client, _):
            client._transport.app.state.services.models.cards.clear()  # type: ignore[attr-defined]
            return await client.post("/v1/captions", content=png(), headers={"content-type": "image/png"})

    start_logging(LogArgs(folder=tmp_path), "test")
    answer = asyncio.run(scenario())
    failure, request = lines(tmp_path)
    assert answer.json()["request_id"] == failure["request_id"] == request["request_id"]
    assert (failure["level"], request["status"], request["error"]) == ("ERROR", 500, "internal_error")
    assert "Traceback" in failure["exception"] and "KeyError" in failure["exception"]


def test_requests_are_left_out_where_nobody_wants_them(tmp_path: Path) -> None:
    start_logging(LogArgs(folder=tmp_path, access=False), "test")
    access_logger.info("request")
    logging.getLogger("serving.engine").warning("told")
    logging.getLogger("models.images").debug("not told")
    assert [line["message"] for line in lines(tmp_path)] == ["told"]


def test_a_record_is_one_line_whatever_is_in_it() -> None:
    record = logging.LogRecord("serving.x", logging.INFO, __file__, 1, "two\r\nlines \u2028 \udcff %s", ("\n",), None)
    record.__dict__.update(access_fields({"request_id": "a\nb", "status": None}))
    line = JsonLines().format(record)
    assert line.isascii() and line.isprintable()
    assert json.loads(line)["request_id"] == "a\nb" and "status" not in json.loads(line)


def test_without_a_folder_it_goes_to_the_standard_error_of_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    start_logging(LogArgs(), "test")
    logging.getLogger("serving.engine").warning("told")
    assert json.loads(capfd.readouterr().err)["message"] == "told"
