"""Pydantic's complaints as one RequestError that names fields and never repeats their values."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from models.errors import RequestError

M = TypeVar("M", bound=BaseModel)

_MOST_SHOWN = 5


def validated(schema: type[M], value: Any, *, strict: bool = True) -> M:
    """``value`` as a ``schema``; ``strict`` for JSON, which has types, not for query text.

    Raises:
        RequestError: ``invalid_request`` with the path of each field that is wrong.
    """
    try:
        return schema.model_validate(value, strict=strict)
    except ValidationError as error:
        raise RequestError("invalid_request", explain(error, "the request", schema.model_fields)) from None


def explain(error: ValidationError, whole: str | None = None, fields: Collection[str] = ()) -> str:
    """``images.0.base64: Field required; num_captions: ...``

    Args:
        whole: what a problem of no single field is called; None: nothing, its message stands alone.
        fields: what to name beside a field that there is not.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [": ".join([*_path(problem, whole), _message(problem, fields)]) for problem in problems[:_MOST_SHOWN]]
    if len(problems) > _MOST_SHOWN:
        shown.append(f"and {len(problems) - _MOST_SHOWN} more")
    return "; ".join(shown)


def _path(problem: Mapping[str, Any], whole: str | None) -> list[str]:
    path = ".".join(str(part)[:80] for part in problem["loc"]) or whole
    return [path] if path else []


def _message(problem: Mapping[str, Any], fields: Collection[str]) -> str:
    if problem["type"] == "extra_forbidden":
        known = f"; there are: {', '.join(fields)}" if fields and len(problem["loc"]) == 1 else ""
        return f"there is no such field{known}"
    return str(problem["msg"]).removeprefix("Value error, ")
