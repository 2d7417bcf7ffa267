"""One table from error code to HTTP status, and the problem documents (RFC 9457) that every refusal is sent as."""

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from models.errors import LimnerError

HTTP_STATUS: dict[str, int] = {
    # ImageError
    "empty": 400,
    "not_an_image": 400,
    "unsupported_format": 415,
    "truncated": 400,
    "too_large": 413,
    "too_small": 400,
    "bad_base64": 400,
    "url_refused": 403,
    "url_failed": 400,
    "unreadable": 400,
    # RequestError
    "malformed_json": 400,
    "malformed_body": 400,
    "invalid_request": 422,
    "unsupported_option": 422,
    "unsupported_media_type": 415,
    "body_too_large": 413,
    "body_timeout": 408,
    "unauthorized": 401,
    # UnknownNameError
    "unknown_model": 404,
    "unknown_name": 422,  # a strategy, say: a field of the request, not the thing it is addressed to
    "unknown_experiment": 404,
    "unknown_vote_target": 404,
    # CheckpointError, DataError, MissingDependencyError, ExperimentError: the server's own files are at fault
    "bad_card": 500,
    "missing_file": 500,
    "hash_mismatch": 500,
    "wrong_keys": 500,
    "bad_config": 500,
    "unsafe_file": 500,
    "not_json": 500,
    "wrong_schema": 500,
    "no_data": 500,
    "missing_image": 500,
    "bad_recipe": 500,
    "missing_ids": 500,
    "not_finite": 500,
    "missing_dependency": 500,
    "bad_experiments": 500,
    "bad_ledger": 500,
    # OverloadedError
    "queue_full": 429,
    "rate_limited": 429,
    "deadline_exceeded": 504,
    "shutting_down": 503,
    "unavailable": 503,
    # what only HTTP knows
    "not_found": 404,
    "method_not_allowed": 405,
    "http_error": 400,
    "internal_error": 500,
}

RETRY_AFTER_S: dict[str, int] = {"queue_full": 1, "shutting_down": 5, "unavailable": 5}
"""Where the error itself brings no estimate."""

PROBLEM_TYPE = "application/problem+json"
_MAX_DETAIL_CHARS = 1000


class Problem(BaseModel):
    """The body of every answer that is not a success."""

    type: str = "about:blank"
    title: str = Field(description="the code in words")
    status: int
    detail: str = Field(description="what was wrong with which input, and what would be right")
    code: str = Field(description="stable; clients may branch on it")
    request_id: str


def public_error(error: BaseException) -> tuple[str, str]:
    """``(code, detail)`` that a client may see: nothing of an unexpected exception but that it happened."""
    if isinstance(error, LimnerError):
        return error.code, error.detail
    return "internal_error", "the server failed on this request; its log has the reason under the request id"


def problem_response(
    code: str, detail: str, request_id: str, *, status: int | None = None, retry_after_s: int | None = None
) -> JSONResponse:
    """The answer for one error; ``status`` and ``retry_after_s`` override the tables."""
    problem = Problem(
        title=code.replace("_", " "),
        status=HTTP_STATUS[code] if status is None else status,
        detail=_encodable(detail),
        code=code,
        request_id=request_id,
    )
    after_s = RETRY_AFTER_S.get(code) if retry_after_s is None else retry_after_s
    headers = {} if after_s is None else {"retry-after": str(after_s)}
    return JSONResponse(problem.model_dump(), problem.status, headers, media_type=PROBLEM_TYPE)


def problem_responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` argument of a route that may fail with these codes, for the OpenAPI document."""
    by_status: dict[int, list[str]] = {}
    for code in (*codes, "internal_error"):
        by_status.setdefault(HTTP_STATUS[code], []).append(code)
    return {
        status: {
            "description": "one of: " + ", ".join(f"`{code}`" for code in listed),
            "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, listed in sorted(by_status.items())
    }


def _encodable(text: str) -> str:
    """``text`` cut to a sane length, with lone surrogates (legal in JSON escapes, not in UTF-8) made visible."""
    return text[:_MAX_DETAIL_CHARS].encode("utf-8", "backslashreplace").decode("utf-8")
