"""The FastAPI application: routes, middleware and error handlers around one set of services. Imports no Ray."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline  # /docs without files from another host
from starlette.middleware.cors import CORSMiddleware

from models import __version__
from models.lookup import resolve
from serving import openapi, problems
from serving.middleware.authentication import Authentication
from serving.middleware.body_limits import BodyLimits
from serving.middleware.full_house import FullHouse
from serving.middleware.request_context import RequestContext
from serving.middleware.security_headers import SecurityHeaders
from serving.middleware.traced import Traced
from serving.request_ids import HEADER
from serving.routes import ADMIN_ROUTERS, ROUTERS
from serving.services import Services

Background = Callable[[], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


def build_api(services: Services, *, return_id: bool = True, background: Background = _nothing) -> FastAPI:
    """The application; ``background`` runs around its life, ``return_id`` is false behind a proxy that sends
    ``x-request-id`` back itself."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with background():
            yield

    app = FastAPIOffline(
        title="limner",
        version=__version__,
        description="Captions for pictures.",
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,  # a wrong path is 404, not a hint at another
    )
    app.state.services = services
    routers = ROUTERS if services.admin is None else {**ROUTERS, **ADMIN_ROUTERS}
    for name in routers:
        app.include_router(resolve("router", routers, name))
    problems.add_handlers(app)
    openapi.install(app, keys=services.keys is not None, admin=services.admin is not None)
    limits = services.args.limits
    app.add_middleware(BodyLimits, max_body_bytes=limits.max_body_bytes, timeout_s=limits.body_timeout_s)
    app.add_middleware(FullHouse, refusal=services.backend.refusal)
    if services.keys is not None:
        app.add_middleware(Authentication, keys=services.keys)
    if services.spans is not None:
        app.add_middleware(Traced, spans=services.spans)
    app.add_middleware(RequestContext, reporter=services.reporter, return_id=return_id)
    if services.args.cors_origins:
        app.add_middleware(CORSMiddleware, **_cors(services.args.cors_origins))
    app.add_middleware(SecurityHeaders)  # the last added is outermost
    return app


def _cors(origins: Sequence[str]) -> dict[str, Any]:
    """What pages of these origins may send and read. Keys travel in headers, so browsers need no credentials of their
    own."""
    return {
        "allow_origins": origins,
        "allow_methods": ("GET", "POST"),
        "allow_headers": ("authorization", "content-type", "x-api-key", HEADER),
        "expose_headers": ("retry-after", "www-authenticate", HEADER),
    }
