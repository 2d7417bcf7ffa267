"""GET /: the page for browsers, a few lines for others; GET /page/{file}: what the page is made of."""

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from serving.page_files import CONTENT_TYPES, PageFile, index_page, page_file
from serving.services import ServicesDep

router = APIRouter(include_in_schema=False)

_TEXT = """limner: captions for pictures.

curl --data-binary @photo.jpg -H 'content-type: image/jpeg'{key} <this address>/v1/captions

/            in a browser: the same with a dial, comparisons and experiments
/docs        the whole interface
/v1/models   the models served here
"""

_HEADERS = {
    "cache-control": "no-cache",  # kept, but asked for again: a new version shows at once, an old one costs 304
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request, services: ServicesDep) -> Response:
    """The page where HTML is accepted, text where it is not."""
    if "text/html" not in request.headers.get("accept", ""):
        key = " -H 'x-api-key: KEY'" if services.keys is not None else ""
        return PlainTextResponse(_TEXT.format(key=key), headers={"vary": "accept"})
    response = _answer(request, index_page(services.args.limits))
    response.headers["vary"] = "accept"
    return response


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def page(request: Request, name: str) -> Response:
    """One file of the page."""
    if name not in CONTENT_TYPES:
        raise HTTPException(404)
    return _answer(request, page_file(name))


def _answer(request: Request, file: PageFile) -> Response:
    headers = {**_HEADERS, "etag": file.etag}
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.content_type)
