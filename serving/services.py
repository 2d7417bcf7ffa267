"""What every route may use, and the one way a route gets at it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

from fastapi import Depends, Request

from models.errors import OverloadedError
from serving.api_keys import ApiKeys
from serving.args import AppArgs
from serving.experiments.outcomes import OutcomeSender
from serving.experiments.records import Outcome, Vote
from serving.experiments.statistics import Results
from serving.fetching.url_images import UrlImages
from serving.messages import CaptionJob, CaptionReply, ScoreJob, ScoreReply
from serving.reports import Reporter
from serving.served_models import ServedModels

if TYPE_CHECKING:
    from serving.spans import Spans


class Backend(Protocol):
    """The captioner and the monitor, seen from a route. Errors come as LimnerError."""

    async def caption(self, job: CaptionJob) -> CaptionReply:
        """Captions of the images of one request."""

    async def score(self, job: ScoreJob) -> ScoreReply:
        """CLIPScores of given captions."""

    def refusal(self) -> OverloadedError | None:
        """What every request for captions or scores gets now, whatever is in it; None: it depends."""

    async def ready(self) -> bool:
        """Whether every model has captioned one real picture; answers within a second."""

    async def metrics(self) -> bytes:
        """The Prometheus text; ``unavailable`` when the monitor does not answer within a second."""


class LedgerClient(Protocol):
    """The ledger of experiments, seen from a route. Errors come as LimnerError."""

    async def record(self, outcomes: Sequence[Outcome]) -> Collection[str]:
        """The ids of what is committed."""

    async def vote(self, vote: Vote) -> None:
        """Keep a vote; ``unknown_vote_target`` where there is no such result."""

    async def results(self, experiment: str, labels: Sequence[str]) -> Results:
        """What can be said about the arms with these labels."""


class RegistryClient(Protocol):
    """What decides which models are served, seen from a route. Errors come as LimnerError."""

    async def put(self, model: str) -> bool:
        """Serve this model, or its present files; whether it is new."""

    async def remove(self, model: str) -> None:
        """Serve this model no more."""


@dataclass(frozen=True)
class Admin:
    """What those may do who run the server."""

    registry: RegistryClient
    keys: ApiKeys


@dataclass(frozen=True)
class Services:
    """One per ingress process."""

    args: AppArgs
    models: ServedModels
    backend: Backend
    reporter: Reporter
    ledger: LedgerClient | None = None
    """None: there are no experiments."""

    outcomes: OutcomeSender | None = None
    """Takes what is to be recorded in the ledger; None as above."""

    url_images: UrlImages | None = None
    """None: images by URL are refused."""

    keys: ApiKeys | None = None
    """None: everybody may ask."""

    admin: Admin | None = None
    """None: models neither come nor go."""

    spans: "Spans | None" = None
    """Records what a request takes; None: nothing is traced."""


def services_of(request: Request) -> Services:
    """The services of the application that got ``request``."""
    services: Services = request.app.state.services
    return services


async def _services(request: Request) -> Services:
    """Not a thread's work, as that of a plain function would be."""
    return services_of(request)


ServicesDep = Annotated[Services, Depends(_services)]
