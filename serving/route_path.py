"""The path of a request as the routes know it."""

from starlette.types import Scope


def route_path(scope: Scope) -> str:
    """The path without the root path, which a proxy or a Serve route prefix puts in front."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
