"""Checking of a variant's own options, with messages that fit on one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from models.errors import RequestError

M = TypeVar("M", bound=BaseModel)


def parse_options(what: str, model: type[M], raw: Mapping[str, Any]) -> M:
    """The checked options of ``what``, such as ``metric 'bleu'``.

    Raises:
        RequestError: ``invalid_request``; the message names each option, its value and what is wrong with it.
    """
    try:
        return model.model_validate(dict(raw))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'options'}: {item['msg']} (got {item['input']!r})"
            if item["type"] != "missing"
            else f"{'.'.join(map(str, item['loc']))}: is required"
            for item in error.errors()
        )
        group, fields = _group(model, error)
        allowed = ", ".join(fields) or "none"
        raise RequestError("invalid_request", f"{what}: {problems}; options{group}: {allowed}") from error


def _group(model: type[BaseModel], error: ValidationError) -> tuple[str, Iterable[str]]:
    """Which options there are where the first unknown one stands: in which group, if not at the top."""
    unknown = next((item["loc"] for item in error.errors() if item["type"] == "extra_forbidden"), ())
    at: Any = model
    for name in unknown[:-1]:
        at = at.model_fields[name].annotation if name in getattr(at, "model_fields", {}) else None
    if len(unknown) > 1 and isinstance(at, type) and issubclass(at, BaseModel):
        return f" of {'.'.join(map(str, unknown[:-1]))}", at.model_fields
    return "", model.model_fields
