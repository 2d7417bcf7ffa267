"""The HTTP routes: one module each, found by these tables."""

ROUTERS: dict[str, str] = {
    "captions": "serving.routes.captions:router",
    "chat": "serving.routes.chat:router",
    "compare": "serving.routes.compare:router",
    "score": "serving.routes.score:router",
    "models": "serving.routes.models_list:router",
    "experiments": "serving.routes.experiments:router",
    "probes": "serving.routes.probes:router",
    "index": "serving.routes.index:router",
}

ADMIN_ROUTERS: dict[str, str] = {"admin": "serving.routes.admin:router"}
"""Only there where the server has admin keys."""
