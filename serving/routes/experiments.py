"""/v1/experiments: what is compared, what came of it, and votes."""

import asyncio
import time
from contextlib import suppress
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from models.errors import OverloadedError, UnknownNameError
from serving.bodies import read_json
from serving.errors import problem_responses
from serving.experiments.assignment import find_experiment
from serving.experiments.definition import Experiment
from serving.experiments.records import Vote
from serving.experiments.statistics import Results
from serving.openapi import json_form
from serving.schemas import Status, VoteRequest
from serving.services import LedgerClient, Services, ServicesDep
from serving.validation import validated

router = APIRouter(tags=["experiments"])

_FLUSH_S = 2.0
_UNCONFIRMED_S = 1.0
"""How long another ingress may hold an outcome back before the ledger has it."""

_ERRORS = problem_responses("unknown_experiment", "unavailable")
_VOTE_ERRORS = problem_responses(
    *("malformed_json", "body_timeout", "body_too_large", "unsupported_media_type", "invalid_request"),
    *("unknown_experiment", "unknown_vote_target", "unavailable"),
)


class ExperimentList(BaseModel):
    """Answer of `/v1/experiments`."""

    object: Literal["list"] = "list"
    data: list[Experiment] = Field(description="as they were defined when the server started")


class ExperimentReport(BaseModel):
    """Answer of `/v1/experiments/{name}`."""

    experiment: Experiment = Field(description="as it was defined when the server started")
    results: Results = Field(description="each arm, and each pair of arms, up to now")


@router.get("/v1/experiments")
async def experiments(services: ServicesDep) -> ExperimentList:
    """The experiments that run here."""
    return ExperimentList(data=list(services.args.experiments))


@router.get("/v1/experiments/{name}", responses=_ERRORS)
async def experiment(name: str, services: ServicesDep) -> ExperimentReport:
    """One experiment and its results."""
    found, ledger = _find(services, name)
    results = await ledger.results(name, [arm.label for arm in found.arms])
    return ExperimentReport(experiment=found, results=results)


@router.post("/v1/experiments/{name}/votes", responses=_VOTE_ERRORS, openapi_extra=json_form(VoteRequest))
async def vote(name: str, request: Request, services: ServicesDep) -> Status:
    """Vote on a result; what is answered with 200 is kept."""
    found, ledger = _find(services, name)
    asked = validated(VoteRequest, await read_json(request))
    given = Vote(found.name, asked.arm, asked.request_id, asked.index, asked.value, time.time())
    await _flush(services)  # whoever votes has the answer; the ledger may not have it yet
    try:
        await ledger.vote(given)
    except UnknownNameError:
        await asyncio.sleep(_UNCONFIRMED_S)
        if services.outcomes is not None and services.outcomes.holds(given.outcome_id):
            raise OverloadedError("unavailable", "the ledger does not take outcomes now; vote again later") from None
        await ledger.vote(given)
    return Status(status="recorded")


async def _flush(services: Services) -> None:
    if services.outcomes is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await services.outcomes.flush()


def _find(services: Services, name: str) -> tuple[Experiment, LedgerClient]:
    found = find_experiment(services.args.experiments, name)
    if services.ledger is None:
        raise OverloadedError("unavailable", "this server has experiments but no ledger")
    return found, services.ledger
