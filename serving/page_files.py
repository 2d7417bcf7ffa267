"""The files of the page, as they are sent: a fixed table, so that no path of a client is ever looked up on the disk."""

from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from serving.args import Limits

_SCRIPT = "text/javascript; charset=utf-8"
_BASE64_GROWTH = 4 / 3
_ENVELOPE_BYTES = 64 * 1024
"""Room for what a request holds beside its picture."""

CONTENT_TYPES: dict[str, str] = {
    "style.css": "text/css; charset=utf-8",
    "parts.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "example.jpg": "image/jpeg",
    "app.js": _SCRIPT,
    "api.js": _SCRIPT,
    "arm.js": _SCRIPT,
    "caption_facts.js": _SCRIPT,
    "caption_tab.js": _SCRIPT,
    "compare_tab.js": _SCRIPT,
    "dial.js": _SCRIPT,
    "dom.js": _SCRIPT,
    "experiment_view.js": _SCRIPT,
    "experiments_tab.js": _SCRIPT,
    "explain.js": _SCRIPT,
    "health.js": _SCRIPT,
    "interval_chart.js": _SCRIPT,
    "key.js": _SCRIPT,
    "numbers.js": _SCRIPT,
    "picture.js": _SCRIPT,
    "picture_well.js": _SCRIPT,
    "prometheus.js": _SCRIPT,
    "tabs.js": _SCRIPT,
    "votes.js": _SCRIPT,
}


@dataclass(frozen=True)
class PageFile:
    """One file, and the tag that tells whether a browser's copy of it is the same."""

    content: bytes
    content_type: str
    etag: str


@cache
def page_file(name: str) -> PageFile:
    """A file of CONTENT_TYPES; read once in a process."""
    return _file(files("serving").joinpath("page", name).read_bytes(), CONTENT_TYPES[name])


@cache
def index_page(limits: Limits) -> PageFile:
    """The document itself, told how large a picture may be: a browser cannot show the refusal of a body that the server
    does not read to its end."""
    for_body = int((limits.max_body_bytes - _ENVELOPE_BYTES) / _BASE64_GROWTH)
    most = max(0, min(limits.max_image_bytes, for_body))
    html = files("serving").joinpath("page", "index.html").read_text(encoding="utf-8")
    return _file(html.replace("{max_image_bytes}", str(most)).encode(), "text/html; charset=utf-8")


def _file(content: bytes, content_type: str) -> PageFile:
    return PageFile(content, content_type, f'"{blake2b(content, digest_size=16).hexdigest()}"')
