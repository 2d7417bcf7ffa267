"""What a URL must be to be fetched, before anything is looked up."""

import re
from collections.abc import Sequence

import httpx

from models.errors import ImageError

_MOST_CHARS = 8192
_LAST_PORT = 65535
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")  # of names outside ASCII httpx makes such


def checked_url(text: str, hosts: Sequence[str] | None, base: httpx.URL | None = None) -> httpx.URL:
    """``text`` as a URL that may be fetched as far as can be seen from itself.

    Args:
        hosts: those allowed: names, or ``.name`` for a domain with all below it; None: any.
        base: where ``text`` was found, if it is a redirect.

    Raises:
        ImageError: ``url_refused``; ``url_failed`` for what is no URL.
    """
    what = "the redirect" if base else "url"
    if len(text) > _MOST_CHARS:
        raise ImageError("url_refused", f"{what}: {len(text)} characters; at most {_MOST_CHARS} are allowed")
    try:
        url = base.join(text.strip()) if base else httpx.URL(text.strip())
    except (httpx.InvalidURL, ValueError):
        raise ImageError("url_failed", f"{what}: this is no URL") from None
    if url.scheme not in ("http", "https"):
        raise ImageError("url_refused", f"{what}: only http:// and https:// addresses are fetched")
    if not _HOST.fullmatch(host_of(url)) or not (url.port is None or 0 < url.port <= _LAST_PORT):
        raise ImageError("url_failed", f"{what}: this URL has no host, or none that can be")
    if url.userinfo:
        raise ImageError("url_refused", f"{what}: a URL with a user name or password is not fetched")
    if hosts is not None and not any(_is_of(host_of(url), allowed) for allowed in hosts):
        raise ImageError(
            "url_refused", f"{what}: the host {host_of(url)[:100]!r} is not among those that this server fetches from"
        )
    return url


def host_of(url: httpx.URL) -> str:
    """The host as it is looked up: ASCII, lower case, without a dot at the end."""
    return url.raw_host.decode("ascii").lower().removesuffix(".")


def _is_of(host: str, allowed: str) -> bool:
    return host == allowed.removeprefix(".") or (allowed.startswith(".") and host.endswith(allowed))
