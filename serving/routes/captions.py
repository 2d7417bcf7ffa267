"""POST /v1/captions: images in, captions out."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from models.errors import LimnerError
from serving import metrics
from serving.admission import admit
from serving.bodies import read_caption_request
from serving.client_watch import unless_gone
from serving.errors import problem_responses
from serving.experiments.participation import Participation, take_part
from serving.experiments.records import Outcome
from serving.jobs import caption_job
from serving.messages import CaptionJob, CaptionReply
from serving.openapi import caption_forms
from serving.problems import refuse
from serving.results import failures, result_of
from serving.schemas import CaptionResponse, ExperimentOut, IndexedResult, TimingOut
from serving.services import Services, ServicesDep
from serving.url_requests import with_images

router = APIRouter()

_NO_ARM_TRIED = frozenset({"unavailable", "shutting_down"})
"""Refusals that say nothing of the arm: there was no captioner to ask."""

_ERRORS = problem_responses(
    *("malformed_json", "malformed_body", "truncated", "not_an_image", "empty", "too_small", "bad_base64"),
    *(
        "url_refused",
        "url_failed",
        "unknown_model",
        "unknown_experiment",
        "body_timeout",
        "body_too_large",
        "too_large",
    ),
    *("unsupported_media_type", "unsupported_format", "invalid_request", "unsupported_option"),
    *("queue_full", "unavailable", "shutting_down", "deadline_exceeded"),
)


@router.post(
    "/v1/captions", response_model=CaptionResponse, responses=_ERRORS, openapi_extra=caption_forms(), tags=["captions"]
)
async def captions(request: Request, services: ServicesDep) -> Response | CaptionResponse:
    """Caption 1 to 32 images.

    A bad image among good ones fails alone: status 200, and its result has `error`. When every image is bad, the answer
    is a problem document with the first one's code.
    """
    options, images = await read_caption_request(request, services)
    part, options = take_part(services.args.experiments, options, request.state.request_id)
    job = caption_job(services, request.state.request_id, options)
    admit(request, job.model, len(images))
    with _recorded(services, part, job, len(images)) as record:
        reply = await unless_gone(
            request,
            with_images(request, services, images, lambda found: services.backend.caption(replace(job, images=found))),
        )
        record(reply, time.perf_counter() - request.state.started)
    failed = failures(reply.results)
    if len(failed) == len(reply.results):
        return refuse(request, failed[0].code, failed[0].detail)
    for failure in failed:
        services.reporter.count(metrics.ERRORS, failure.code)
    return _response(job, part, reply, time.perf_counter() - request.state.started)


@contextmanager
def _recorded(
    services: Services, part: Participation | None, job: CaptionJob, images: int
) -> Iterator[Callable[[CaptionReply, float], None]]:
    """A function that leaves the outcomes of an answer in the ledger; a request that fails leaves its own."""

    def keep(outcomes: Sequence[Outcome]) -> None:
        assert part is not None and services.outcomes is not None
        services.reporter.count(metrics.EXPERIMENT_IMAGES, part.experiment.name, part.arm.label, amount=len(outcomes))
        services.outcomes.add(outcomes)

    def record(reply: CaptionReply, total_s: float) -> None:
        if part is not None:
            keep(part.outcomes(job, reply, total_s))

    try:
        yield record
    except LimnerError as error:
        if part is not None and error.code not in _NO_ARM_TRIED:
            keep(part.failures(job.model, images, error.code))
        raise


def _response(job: CaptionJob, part: Participation | None, reply: CaptionReply, total_s: float) -> CaptionResponse:
    timing = reply.timing_ms
    experiment = ExperimentOut(name=part.experiment.name, arm=part.arm.label) if part else None
    return CaptionResponse(
        id=job.request_id,
        model=job.model,
        results=[
            IndexedResult(index=index, **result_of(image).model_dump()).model_copy(update={"experiment": experiment})
            for index, image in enumerate(reply.results)
        ],
        timing_ms=TimingOut(
            queue=timing.queue,
            encode=timing.encode,
            decode=timing.decode,
            score=timing.score,
            total=total_s * 1000,
        ),
    )
