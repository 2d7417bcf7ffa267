"""Refusals as they leave the ingress: every one counted, each in the format of its route, with the request's id."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from models.errors import LimnerError, OverloadedError
from serving import metrics
from serving.errors import problem_response
from serving.openai_errors import in_format_of_route
from serving.services import services_of

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}


def refuse(
    request: Request, code: str, detail: str, *, status: int | None = None, retry_after_s: int | None = None
) -> Response:
    """The answer to a request that failed as a whole."""
    services_of(request).reporter.count(metrics.ERRORS, code)
    request.state.error = code
    problem = problem_response(code, detail, request.state.request_id, status=status, retry_after_s=retry_after_s)
    if code == "unauthorized":
        problem.headers["www-authenticate"] = 'Bearer realm="limner"'
    return in_format_of_route(request.scope, problem)


def refuse_for(request: Request, error: LimnerError) -> Response:
    """The same, by the error."""
    retry_after_s = error.retry_after_s if isinstance(error, OverloadedError) else None
    return refuse(request, error.code, error.detail, retry_after_s=retry_after_s)


def add_handlers(app: FastAPI) -> None:
    """Answer limner's errors and those of the HTTP layer itself (no such route, wrong method, a missing query
    parameter) alike."""
    app.add_exception_handler(LimnerError, _limner_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)


async def _limner_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LimnerError)
    return refuse_for(request, error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = ("".join(f"{part}: " for part in each["loc"][1:]) + each["msg"] for each in error.errors())
    return refuse(request, "invalid_request", "; ".join(problems))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "http_error")
    detail = {
        "not_found": "no such route; /docs lists them",
        "method_not_allowed": f"this route does not take {request.method}; /docs lists what it takes",
    }.get(code, str(error.detail))
    response = refuse(request, code, detail, status=error.status_code)
    response.headers.update(error.headers or {})
    return response
