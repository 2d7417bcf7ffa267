"""Checking of a variant's own options, with messages that fit on one line."""

from __future__ import annotations

from collections.abc import Mapping
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
        allowed = ", ".join(model.model_fields) or "none"
        raise RequestError("invalid_request", f"{what}: {problems}; options: {allowed}") from error
