"""GET /healthz, /readyz and /metrics: for the machinery around the server."""

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from models.errors import OverloadedError
from serving.errors import problem_responses
from serving.metrics import Metrics
from serving.schemas import Status
from serving.services import ServicesDep

router = APIRouter(tags=["probes"])


@router.head("/healthz", include_in_schema=False)  # as load balancers and monitors of uptime ask
@router.get("/healthz")
async def healthz() -> Status:
    """200 while the HTTP layer answers, whatever the state of the models."""
    return Status(status="ok")


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=problem_responses("unavailable"))
async def readyz(services: ServicesDep) -> Status:
    """200 once every model has captioned one real picture."""
    if not await services.backend.ready():
        raise OverloadedError("unavailable", "the models are not ready yet")
    return Status(status="ready")


@router.get("/metrics", response_class=PlainTextResponse, responses=problem_responses("unavailable"))
async def metrics(services: ServicesDep) -> Response:
    """Prometheus text format."""
    return Response(await services.backend.metrics(), media_type=Metrics.content_type)
