"""What every route may use, and the one way a route gets at it."""

from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request

from serving.args import AppArgs
from serving.messages import CaptionJob, CaptionReply, ScoreJob, ScoreReply
from serving.reports import Reporter
from serving.served_models import ServedModels


class Backend(Protocol):
    """The captioner and the monitor, seen from a route. Errors come as LimnerError."""

    async def caption(self, job: CaptionJob) -> CaptionReply:
        """Captions of the images of one request."""

    async def score(self, job: ScoreJob) -> ScoreReply:
        """CLIPScores of given captions."""

    async def ready(self) -> bool:
        """Whether every model has captioned one real picture; answers within a second."""

    async def metrics(self) -> bytes:
        """The Prometheus text; ``unavailable`` when the monitor does not answer within a second."""


@dataclass(frozen=True)
class Services:
    """One per ingress process."""

    args: AppArgs
    models: ServedModels
    backend: Backend
    reporter: Reporter


def services_of(request: Request) -> Services:
    """The services of the application that got ``request``."""
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(services_of)]
