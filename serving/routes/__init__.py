"""The HTTP routes: one module each, found by this table."""

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
