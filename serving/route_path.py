"""Which route a request is for, as the routes, the log and the measurements know it."""

from collections.abc import Iterable, Iterator

from starlette.routing import BaseRoute, Match
from starlette.types import Scope

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Any other is told of as one: a client can make them up."""

PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""They come every few seconds."""


def route_path(scope: Scope) -> str:
    """The path without the root path, which a proxy or a Serve route prefix puts in front."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def route_pattern(scope: Scope) -> str:
    """The pattern of the route that answered, or would have if the request had come so far: never a path that a client
    made up."""
    if (route := scope.get("route")) is not None:
        return str(route.path)
    meant = (route for route in _each(scope["app"].routes) if route.matches(scope)[0] is not Match.NONE)
    return str(getattr(next(meant, None), "path", "unmatched"))


def _each(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """The routes themselves; FastAPI keeps those of a router that was included together."""
    for route in routes:
        router = getattr(route, "original_router", None)
        yield from (route,) if router is None else _each(router.routes)
