"""The three forms of a caption request - JSON, multipart, raw image - to options and encoded images."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request

from models.errors import RequestError
from serving.image_inputs import image_bytes
from serving.messages import Failure
from serving.multipart import parse_multipart
from serving.schemas import CaptionOptions, CaptionRequest
from serving.strict_json import parse_json
from serving.validation import validated

Images = tuple[bytes | Failure, ...]

_QUERY_JSON = ("decode", "mix")


async def read_caption_request(request: Request, max_images: int) -> tuple[CaptionOptions, Images]:
    """What a request to ``/v1/captions`` asks, whatever form its body has.

    Raises:
        RequestError: ``unsupported_media_type``, ``malformed_json``, ``malformed_body`` or ``invalid_request``.
    """
    _check_encoding(request)
    options, images = await _reader(media_type(request))(request, max_images)
    check_count(len(images), max_images)
    return options, images


async def read_json(request: Request) -> Any:
    """The body of a request that must be JSON.

    Raises:
        RequestError: ``unsupported_media_type`` or ``malformed_json``.
    """
    _check_encoding(request)
    if not _is_json(media_type(request)):
        raise RequestError("unsupported_media_type", "this route takes application/json")
    return parse_json(await request.body())


def media_type(request: Request) -> str:
    """The media type of the body, lower case, without parameters; empty when the request names none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_encoding(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise RequestError("unsupported_media_type", "send the body as it is, without content-encoding")


def check_count(images: int, max_images: int) -> None:
    """Raise ``invalid_request`` for a request with more images than allowed."""
    if images > max_images:
        raise RequestError("invalid_request", f"images: {images} given, at most {max_images} in one request")


def _reader(kind: str) -> Callable[[Request, int], Awaitable[tuple[CaptionOptions, Images]]]:
    if _is_json(kind):
        return _from_json
    if kind == "multipart/form-data":
        return _from_multipart
    if kind.startswith("image/") or kind == "application/octet-stream":
        return _from_raw
    raise RequestError(
        "unsupported_media_type",
        "send application/json, multipart/form-data, or the image itself as image/* or application/octet-stream",
    )


def _is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


async def _from_json(request: Request, _max_images: int) -> tuple[CaptionOptions, Images]:
    asked = validated(CaptionRequest, parse_json(await request.body()))
    return asked, tuple(map(image_bytes, asked.images))


async def _from_raw(request: Request, _max_images: int) -> tuple[CaptionOptions, Images]:
    given: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name in given:
            raise RequestError("invalid_request", f"{name[:80]}: given twice in the query")
        given[name] = parse_json(text, f"the query parameter {name}") if name in _QUERY_JSON else text
    # What is JSON must be right as it is; only the rest is text that stands for numbers.
    validated(CaptionOptions, {name: value for name, value in given.items() if name in _QUERY_JSON})
    return validated(CaptionOptions, given, strict=False), (await request.body(),)


async def _from_multipart(request: Request, max_images: int) -> tuple[CaptionOptions, Images]:
    parts = parse_multipart(request.headers["content-type"], await request.body(), max_parts=max_images + 1)
    images = tuple(part.data for part in parts if part.name == "images")
    asked = [part.data for part in parts if part.name == "request"]
    for part in parts:
        if part.name not in ("images", "request"):
            raise _refuse(f"the form has a part {part.name[:80]!r}; it takes parts 'images' and one part 'request'")
    if not images:
        raise _refuse("images: the form needs at least one part of this name")
    if len(asked) > 1:
        raise _refuse("request: given twice in the form")
    options = parse_json(asked[0], "the part 'request'") if asked else {}
    return validated(CaptionOptions, options), images


def _refuse(detail: str) -> RequestError:
    return RequestError("invalid_request", detail)
