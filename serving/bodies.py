"""The forms of a request about images - JSON, multipart, raw image - to options and encoded images."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel

from models.errors import RequestError
from serving.compare_schemas import CompareOptions, CompareRequest
from serving.image_inputs import GivenImage, image_bytes
from serving.messages import Failure
from serving.multipart import parse_multipart
from serving.schemas import CaptionOptions, CaptionRequest, ImageInput
from serving.services import Services
from serving.strict_json import parse_json
from serving.validation import validated

Images = tuple[GivenImage, ...]

Options = TypeVar("Options", bound=BaseModel)

_QUERY_JSON = ("decode", "mix")
_BASE64_TEXT = re.compile(rb"\s*(data:[^,]{0,200};base64,|[A-Za-z0-9+/_-]{64})", re.IGNORECASE)
_MULTIPART = "multipart/form-data"


async def read_caption_request(request: Request, services: Services) -> tuple[CaptionOptions, Images]:
    """What a request to ``/v1/captions`` asks, whatever form its body has.

    Raises:
        RequestError: ``unsupported_media_type``, ``malformed_json``, ``malformed_body`` or ``invalid_request``.
    """
    _check_encoding(request)
    kind = media_type(request)
    if kind.startswith("image/") or kind == "application/octet-stream":
        return await _from_raw(request)
    if kind != _MULTIPART and not _is_json(kind):
        raise RequestError(
            "unsupported_media_type",
            "send application/json, multipart/form-data, or the image itself as image/* or application/octet-stream "
            "(by curl: -H 'content-type: image/jpeg')",
        )
    _check_query(request)
    if kind == _MULTIPART:
        return await _from_multipart(request, CaptionOptions, services.args.limits.max_images)
    asked = validated(CaptionRequest, parse_json(await request.body()))
    return asked, given_images(asked.images, services)


async def read_compare_request(request: Request, services: Services) -> tuple[CompareOptions, Images]:
    """What a request to ``/v1/compare`` asks. Raises as ``read_caption_request`` does."""
    _check_encoding(request)
    kind = media_type(request)
    if kind != _MULTIPART and not _is_json(kind):
        raise RequestError("unsupported_media_type", "send application/json or multipart/form-data")
    _check_query(request)
    if kind == _MULTIPART:
        return await _from_multipart(request, CompareOptions, services.args.limits.max_images)
    asked = validated(CompareRequest, parse_json(await request.body()))
    return asked, given_images(asked.images, services)


def given_images(listed: Sequence[ImageInput], services: Services) -> Images:
    """The images of a JSON body; raises ``invalid_request`` for more than allowed."""
    check_count(len(listed), services.args.limits.max_images)
    return tuple(image_bytes(image, urls=services.url_images is not None) for image in listed)


async def read_json(request: Request) -> Any:
    """The body of a request that must be JSON.

    Raises:
        RequestError: ``unsupported_media_type`` or ``malformed_json``.
    """
    _check_encoding(request)
    if not _is_json(media_type(request)):
        raise RequestError("unsupported_media_type", "this route takes application/json")
    _check_query(request)
    return parse_json(await request.body())


def media_type(request: Request) -> str:
    """The media type of the body, lower case, without parameters; empty when the request names none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_encoding(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise RequestError("unsupported_media_type", "send the body as it is, without content-encoding")


def _check_query(request: Request) -> None:
    """Refuse options where nobody would look for them."""
    if misplaced := [name for name in CaptionOptions.model_fields if name in request.query_params]:
        where = "beside a raw image to /v1/captions"
        raise _refuse(f"{misplaced[0]}: in the query only {where}; here it belongs into the JSON")


def check_count(images: int, max_images: int) -> None:
    """Raise ``invalid_request`` for a request with more images than allowed."""
    if images > max_images:
        raise RequestError("invalid_request", f"images: {images} given, at most {max_images} in one request")


def _is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


async def _from_raw(request: Request) -> tuple[CaptionOptions, Images]:
    given: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name in given:
            raise RequestError("invalid_request", f"{name[:80]}: given twice in the query")
        given[name] = parse_json(text, f"the query parameter {name}") if name in _QUERY_JSON else text
    # What is JSON must be right as it is; only the rest is text that stands for numbers.
    validated(CaptionOptions, {name: value for name, value in given.items() if name in _QUERY_JSON})
    return validated(CaptionOptions, given, strict=False), (_as_sent(await request.body()),)


async def _from_multipart(request: Request, schema: type[Options], max_images: int) -> tuple[Options, Images]:
    parts = parse_multipart(request.headers["content-type"], await request.body(), max_parts=max_images + 1)
    images = tuple(_as_sent(part.data) for part in parts if part.name == "images")
    asked = [part.data for part in parts if part.name == "request"]
    for part in parts:
        if part.name not in ("images", "request"):
            raise _refuse(f"the form has a part {part.name[:80]!r}; it takes parts 'images' and one part 'request'")
    if not images:
        raise _refuse("images: the form needs at least one part of this name")
    if len(asked) > 1:
        raise _refuse("request: given twice in the form")
    check_count(len(images), max_images)
    return validated(schema, parse_json(asked[0], "the part 'request'") if asked else {}), images


def _as_sent(data: bytes) -> bytes | Failure:
    """The picture, or a hint for who sent its base64 instead; no format of pictures begins like that."""
    if _BASE64_TEXT.match(data):
        return Failure("not_an_image", "this is base64 text: send the file itself here, or base64 in a JSON body")
    return data


def _refuse(detail: str) -> RequestError:
    return RequestError("invalid_request", detail)
