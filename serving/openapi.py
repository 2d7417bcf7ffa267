"""The parts of the OpenAPI document that FastAPI cannot see: bodies that come in several forms, problem documents."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from serving.errors import Problem
from serving.schemas import CaptionOptions, CaptionRequest, DecodeInput, ScoreRequest, VoteRequest

_REF = "#/components/schemas/{model}"
_SCHEMAS: tuple[type[BaseModel], ...] = (
    CaptionRequest,
    CaptionOptions,
    DecodeInput,
    ScoreRequest,
    VoteRequest,
    Problem,
)
_BINARY = {"schema": {"type": "string", "format": "binary"}}


def caption_forms() -> dict[str, Any]:
    """``openapi_extra`` of the caption route: its three body forms, and the query of the raw one."""
    multipart = {
        "type": "object",
        "required": ["images"],
        "properties": {
            "images": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "request": {"$ref": _REF.format(model="CaptionOptions")},
        },
    }
    content = {
        "application/json": {"schema": {"$ref": _REF.format(model="CaptionRequest")}},
        "multipart/form-data": {
            "schema": multipart,
            "encoding": {"request": {"contentType": "application/json"}},
        },
        "image/*": _BINARY,
        "application/octet-stream": _BINARY,
    }
    return {"requestBody": {"required": True, "content": content}, "parameters": _query_parameters()}


def json_form(schema: type[BaseModel]) -> dict[str, Any]:
    """``openapi_extra`` of a route that reads one JSON body itself."""
    content = {"application/json": {"schema": {"$ref": _REF.format(model=schema.__name__)}}}
    return {"requestBody": {"required": True, "content": content}}


def install(app: FastAPI) -> None:
    """Make ``app`` describe itself with the schemas above among its components."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _, own = models_json_schema([(schema, "validation") for schema in _SCHEMAS], ref_template=_REF)
            described.setdefault("components", {}).setdefault("schemas", {}).update(own["$defs"])
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # the way FastAPI documents


def _query_parameters() -> list[dict[str, Any]]:
    properties = CaptionOptions.model_json_schema(ref_template=_REF)["properties"]
    return [_query_parameter(name, schema) for name, schema in properties.items()]


def _query_parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    described = {
        "name": name,
        "in": "query",
        "required": False,
        "description": f"raw image bodies only: {schema['description']}",
    }
    if name in ("decode", "mix"):
        return {**described, "content": {"application/json": {"schema": schema}}}
    return {**described, "schema": schema}
