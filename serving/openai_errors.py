"""Errors in OpenAI's form on the routes of its API: the one place where the form of an error depends on the route."""

import re
from typing import Any, Literal

from fastapi.responses import JSONResponse
from starlette.types import Scope

from models.errors import ImageError
from serving.errors import HTTP_STATUS, Problem
from serving.openai_schemas import ChatRequest, OpenAIError, OpenAIErrorDetail
from serving.route_path import route_path

OPENAI_ROUTES = frozenset({"/v1/chat/completions"})

_CODES = {
    "unknown_model": "model_not_found",
    "unauthorized": "invalid_api_key",
    "queue_full": "rate_limit_exceeded",
    "rate_limited": "rate_limit_exceeded",
}
_PARAMS = {"unknown_model": "model", **dict.fromkeys(ImageError.codes, "messages")}
_STATUS = {422: 400}  # there, 400 stands for every wrong field
# Details about a field begin with its path; some know fields by the names that they have in /v1/captions.
_FIELD = re.compile(r"([a-z_]+)(?:\.\w+)*(?=[: ])")
_OTHER_NAMES = {"num_captions": "n", "images": "messages"}


def in_format_of_route(scope: Scope, problem: JSONResponse) -> JSONResponse:
    """``problem``, a problem document, as the route of the request sends errors; headers stay."""
    if route_path(scope) not in OPENAI_ROUTES:
        return problem
    return _openai_response(Problem.model_validate_json(bytes(problem.body)), problem)


def openai_responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` argument of an OpenAI route that may fail with these codes, for the OpenAPI document."""
    by_status: dict[int, list[str]] = {}
    for code in (*codes, "internal_error"):
        by_status.setdefault(_STATUS.get(HTTP_STATUS[code], HTTP_STATUS[code]), []).append(_CODES.get(code, code))
    return {
        status: {
            "description": "`error.code` is one of: " + ", ".join(f"`{code}`" for code in listed),
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/OpenAIError"}}},
        }
        for status, listed in sorted(by_status.items())
    }


def _openai_response(problem: Problem, original: JSONResponse) -> JSONResponse:
    status = _STATUS.get(problem.status, problem.status)
    error = OpenAIErrorDetail(
        message=problem.detail,
        type=_type(status),
        param=_PARAMS.get(problem.code) or _param(problem.detail),
        code=_CODES.get(problem.code, problem.code),
    )
    kept = {name: value for name, value in original.headers.items() if not name.startswith("content-")}
    return JSONResponse(OpenAIError(error=error).model_dump(), status, kept)


def _type(status: int) -> Literal["invalid_request_error", "rate_limit_error", "server_error"]:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def _param(detail: str) -> str | None:
    """The field that a detail begins with, if it is one of the request's."""
    match = _FIELD.match(detail)
    if match is None:
        return None
    name = _OTHER_NAMES.get(match[1], match[1])
    return name + match[0].removeprefix(match[1]) if name in ChatRequest.model_fields else None
