"""What limner adds to Ray's HTTP proxy, which calls ``middlewares`` before it listens: the environment variable
``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`` names it, on every node."""

from starlette.middleware import Middleware
from uvicorn import config

from serving.middleware.edge_guard import EdgeGuard

CALLBACK = "serving.proxy:middlewares"


def middlewares() -> list[Middleware]:
    """Run around the proxy's own; connections of this process get bounds on the heads of requests as well."""
    config.HTTP_PROTOCOLS["auto"] = "serving.head_limits:HeadLimitsProtocol"  # what the proxy's server looks up
    return [Middleware(EdgeGuard)]
