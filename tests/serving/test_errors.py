"""One status for every code, and what a problem document holds."""

import json

import pytest

from models import errors
from models.errors import LimnerError, UnknownNameError
from serving.errors import HTTP_STATUS, Problem, problem_response, problem_responses, public_error

HTTP_ONLY = {"not_found", "method_not_allowed", "http_error", "internal_error"}


def test_every_code_has_a_status_and_every_status_a_code() -> None:
    codes = {code for kind in LimnerError.__subclasses__() for code in kind.codes}
    assert set(HTTP_STATUS) == codes | HTTP_ONLY
    assert all(400 <= status < 600 for status in HTTP_STATUS.values())


def test_no_class_of_the_tree_is_deeper() -> None:
    assert not [kind for kind in LimnerError.__subclasses__() if kind.__subclasses__()]
    assert errors.ImageError in LimnerError.__subclasses__()


def test_a_problem_document() -> None:
    response = problem_response("queue_full", "no room", "r-1")
    assert (response.status_code, response.media_type) == (429, "application/problem+json")
    assert response.headers["retry-after"] == "1"
    assert Problem(**json.loads(response.body)) == Problem(
        title="queue full", status=429, detail="no room", code="queue_full", request_id="r-1"
    )


def test_details_are_bounded_and_can_be_encoded() -> None:
    body = json.loads(problem_response("unknown_model", "\ud800" + "x" * 5000, "r").body)
    assert body["detail"].startswith("\\ud800x")
    assert len(body["detail"]) < 1100


def test_only_our_own_errors_are_shown() -> None:
    assert public_error(UnknownNameError("unknown_model", "no model 'x'")) == ("unknown_model", "no model 'x'")
    code, detail = public_error(ValueError("/secret/path"))
    assert code == "internal_error"
    assert "secret" not in detail


def test_responses_for_openapi_group_codes_by_status() -> None:
    described = problem_responses("empty", "truncated", "queue_full")
    assert {status: entry["description"] for status, entry in described.items()} == {
        400: "one of: `empty`, `truncated`",
        429: "one of: `queue_full`",
        500: "one of: `internal_error`",
    }


@pytest.mark.parametrize("code", sorted(HTTP_STATUS))
def test_every_code_makes_a_response(code: str) -> None:
    assert problem_response(code, "detail", "r").status_code == HTTP_STATUS[code]
