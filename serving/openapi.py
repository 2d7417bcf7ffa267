"""The parts of the OpenAPI document that FastAPI cannot see: bodies that come in several forms, problem documents."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from serving.compare_schemas import CompareOptions, CompareRequest
from serving.errors import Problem, problem_responses
from serving.middleware.authentication import ADMIN_BELOW, needs_key
from serving.openai_errors import OPENAI_ROUTES, openai_responses
from serving.openai_schemas import ChatChunk, ChatRequest, OpenAIError
from serving.schemas import AddModelRequest, CaptionOptions, CaptionRequest, DecodeInput, ScoreRequest, VoteRequest

_REF = "#/components/schemas/{model}"
_SCHEMAS: tuple[type[BaseModel], ...] = (
    *(CaptionRequest, CaptionOptions, DecodeInput, ScoreRequest, Problem),
    *(ChatRequest, ChatChunk, OpenAIError),
    *(CompareRequest, CompareOptions, VoteRequest, AddModelRequest),
)
_EITHER_HEADER: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]
_BINARY = {"schema": {"type": "string", "format": "binary"}}


def caption_forms() -> dict[str, Any]:
    """``openapi_extra`` of the caption route: its three body forms, and the query of the raw one."""
    content = {**_json_or_multipart(CaptionRequest, CaptionOptions), "image/*": _BINARY}
    content["application/octet-stream"] = _BINARY
    return {"requestBody": {"required": True, "content": content}, "parameters": _query_parameters()}


def compare_forms() -> dict[str, Any]:
    """``openapi_extra`` of the route that compares: its two body forms."""
    return {"requestBody": {"required": True, "content": _json_or_multipart(CompareRequest, CompareOptions)}}


def json_form(schema: type[BaseModel]) -> dict[str, Any]:
    """``openapi_extra`` of a route that reads one JSON body itself."""
    content = {"application/json": {"schema": {"$ref": _REF.format(model=schema.__name__)}}}
    return {"requestBody": {"required": True, "content": content}}


def event_stream(schema: type[BaseModel]) -> dict[str, Any]:
    """An entry of ``responses`` for a success that may also come as server-sent events: the data of each is a
    ``schema``, of the last one ``[DONE]``."""
    content = {"contentMediaType": "application/json", "contentSchema": {"$ref": _REF.format(model=schema.__name__)}}
    data = {"type": "string", "anyOf": [content, {"const": "[DONE]"}]}
    item = {"type": "object", "required": ["data"], "properties": {"data": data}}
    return {"content": {"text/event-stream": {"itemSchema": item}}}


def _json_or_multipart(whole: type[BaseModel], options: type[BaseModel]) -> dict[str, Any]:
    """The contents of a body that is one JSON object, or image files and the rest as JSON."""
    required = [name for name, field in options.model_fields.items() if field.is_required()]
    multipart = {
        "type": "object",
        "required": ["images", *(["request"] if required else [])],
        "additionalProperties": False,
        "properties": {
            "images": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}},
            "request": {"$ref": _REF.format(model=options.__name__)},
        },
    }
    return {
        "application/json": {"schema": {"$ref": _REF.format(model=whole.__name__)}},
        "multipart/form-data": {"schema": multipart, "encoding": {"request": {"contentType": "application/json"}}},
    }


def install(app: FastAPI, *, keys: bool = False, admin: bool = False) -> None:
    """Make ``app`` describe itself with the schemas above among its components; ``keys``: that it asks for API keys;
    ``admin``: that it has routes for those who run it."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _, own = models_json_schema([(schema, "validation") for schema in _SCHEMAS], ref_template=_REF)
            described.setdefault("components", {}).setdefault("schemas", {}).update(own["$defs"])
            if keys or admin:
                _ask_for_keys(described, clients=keys)
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # the way FastAPI documents


def _ask_for_keys(described: dict[str, Any], *, clients: bool) -> None:
    """Say of every closed route that it takes a key, and what it answers where there is none or it is used up; of the
    admin routes alone unless ``clients`` need one."""
    described["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    for path, item in described["paths"].items():
        for operation in item.values():
            if path.startswith(ADMIN_BELOW):
                operation["security"] = _EITHER_HEADER
            elif clients and needs_key(path):
                responses = openai_responses if path in OPENAI_ROUTES else problem_responses
                operation["security"] = _EITHER_HEADER
                operation["responses"]["401"] = responses("unauthorized")[401]
                if "429" in operation["responses"]:
                    operation["responses"]["429"] = responses("queue_full", "rate_limited")[429]


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
