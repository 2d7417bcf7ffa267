"""The form of an error follows the route; statuses, types, params and codes are those that OpenAI's clients expect."""

import json
from typing import Any

import pytest

from serving.errors import HTTP_STATUS, problem_response
from serving.openai_errors import OPENAI_ROUTES, in_format_of_route, openai_responses
from serving.openai_schemas import OpenAIError

CHAT = {"path": "/v1/chat/completions"}


def error(code: str, detail: str = "what was wrong") -> tuple[int, dict[str, Any]]:
    response = in_format_of_route(CHAT, problem_response(code, detail, "r"))
    assert response.headers["content-type"] == "application/json"
    return response.status_code, json.loads(response.body)["error"]


def test_other_routes_keep_the_problem_document() -> None:
    problem = problem_response("queue_full", "no room", "r")
    for path in ("/v1/captions", "/v1/chat", "/v1/chat/completions/", "/x/v1/chat/completions"):
        assert in_format_of_route({"path": path}, problem) is problem


def test_the_route_is_known_behind_a_prefix() -> None:
    scope = {"path": "/caption/v1/chat/completions", "root_path": "/caption"}
    assert in_format_of_route(scope, problem_response("queue_full", "no room", "r")).media_type == "application/json"


def test_a_full_queue_is_a_rate_limit_and_keeps_retry_after() -> None:
    assert error("queue_full") == (
        429,
        {"message": "what was wrong", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"},
    )
    response = in_format_of_route(CHAT, problem_response("queue_full", "no room", "r"))
    assert response.headers["retry-after"] == "1"
    assert int(response.headers["content-length"]) == len(response.body)


@pytest.mark.parametrize(
    ("code", "status", "kind", "shown"),
    [
        ("unknown_model", 404, "invalid_request_error", "model_not_found"),
        ("invalid_request", 400, "invalid_request_error", "invalid_request"),
        ("unsupported_option", 400, "invalid_request_error", "unsupported_option"),
        ("too_large", 413, "invalid_request_error", "too_large"),
        ("unsupported_format", 415, "invalid_request_error", "unsupported_format"),
        ("shutting_down", 503, "server_error", "shutting_down"),
        ("internal_error", 500, "server_error", "internal_error"),
    ],
)
def test_status_type_and_code(code: str, status: int, kind: str, shown: str) -> None:
    found, body = error(code)
    assert (found, body["type"], body["code"]) == (status, kind, shown)


@pytest.mark.parametrize("code", sorted(HTTP_STATUS))
def test_every_code_has_a_form(code: str) -> None:
    status, body = error(code)
    assert OpenAIError.model_validate({"error": body})
    assert status != 422


@pytest.mark.parametrize(
    ("code", "detail", "param"),
    [
        ("unknown_model", "no model 'x' is served here", "model"),
        ("truncated", "the file ends early", "messages"),
        ("invalid_request", "temperature: Input should be less than or equal to 2; n: wrong too", "temperature"),
        ("invalid_request", "messages.0.content.parts.1: a part of type image_url needs", "messages.0.content.parts.1"),
        ("unsupported_option", "decode.guidance 1.5: models of the family 'fake'", "decode.guidance"),
        ("invalid_request", "num_captions 2 is more than the 1", "n"),
        ("invalid_request", "images: 33 given, at most 32", "messages"),
        ("invalid_request", "the request: Input should be a valid dictionary", None),
        ("malformed_json", "the body is not JSON", None),
        ("invalid_request", "option 'beams' of decoding strategy 'beam' is 65", None),
    ],
)
def test_the_param_is_the_field_that_the_message_begins_with(code: str, detail: str, param: str | None) -> None:
    assert error(code, detail)[1]["param"] == param


def test_responses_for_openapi_group_codes_by_status() -> None:
    described = openai_responses("empty", "invalid_request", "unknown_model")
    assert {status: entry["description"] for status, entry in described.items()} == {
        400: "`error.code` is one of: `empty`, `invalid_request`",
        404: "`error.code` is one of: `model_not_found`",
        500: "`error.code` is one of: `internal_error`",
    }


def test_the_routes_exist() -> None:
    from serving.routes.chat import router

    assert {getattr(route, "path", None) for route in router.routes} == OPENAI_ROUTES
