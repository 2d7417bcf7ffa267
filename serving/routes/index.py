"""GET /: where to go from here."""

from fastapi import APIRouter
from starlette.responses import PlainTextResponse

router = APIRouter()

_TEXT = """limner: captions for pictures.

curl --data-binary @photo.jpg -H 'content-type: image/jpeg' <this address>/v1/captions

/docs        the whole interface
/v1/models   the models served here
"""


@router.get("/", response_class=PlainTextResponse, include_in_schema=False)
async def index() -> str:
    """A few lines for people."""
    return _TEXT
