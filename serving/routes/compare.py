"""POST /v1/compare: the same images captioned in several ways, side by side."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from models.errors import RequestError, UnknownNameError
from serving import metrics
from serving.admission import admit
from serving.arms import describe, label_arms
from serving.bodies import read_compare_request
from serving.client_watch import unless_gone
from serving.compare_schemas import ArmInput, ArmOut, CompareOptions, CompareResponse
from serving.errors import problem_responses
from serving.jobs import caption_job
from serving.messages import CaptionJob, CaptionReply
from serving.openapi import compare_forms
from serving.problems import refuse
from serving.results import result_of
from serving.schemas import CaptionOptions, HowToCaption, IndexedResult, TimingOut
from serving.services import Services, ServicesDep
from serving.url_requests import Images, with_images

router = APIRouter()

_ERRORS = problem_responses(
    *("malformed_json", "malformed_body", "truncated", "not_an_image", "empty", "too_small", "bad_base64"),
    *("url_refused", "url_failed", "unknown_model", "body_timeout", "body_too_large", "too_large"),
    *("unsupported_media_type", "unsupported_format", "invalid_request", "unsupported_option", "unknown_name"),
    *("queue_full", "unavailable", "shutting_down", "deadline_exceeded"),
)


@router.post(
    "/v1/compare", response_model=CompareResponse, responses=_ERRORS, openapi_extra=compare_forms(), tags=["captions"]
)
async def compare(request: Request, services: ServicesDep) -> Response | CompareResponse:
    """Caption the same images by 2 to 6 arms, which run at the same time.

    Every arm captions every image, so images x arms is bounded as the images of a caption request are. An arm that
    cannot be had refuses the whole request. A bad image fails alone in every arm; when nothing was captioned, the
    answer is a problem document with the first error's code.
    """
    asked, images = await read_compare_request(request, services)
    _check_size(len(images), len(asked.arms), services.args.limits.max_images)
    labels, jobs = _jobs(services, request.state.request_id, asked)
    admit(request, jobs[0].model, len(images) * len(jobs))

    async def ask(found: Images) -> list[CaptionReply]:
        return await _at_the_same_time(services, labels, [replace(job, images=found) for job in jobs])

    replies = await unless_gone(request, with_images(request, services, images, ask))
    results = [image for reply in replies for image in reply.results]
    failed = [image.error for image in results if image.error is not None]
    if len(failed) == len(results):
        return refuse(request, failed[0].code, failed[0].detail)
    for code in _codes(replies):
        services.reporter.count(metrics.ERRORS, code)
    return CompareResponse(
        id=request.state.request_id,
        arms=[_arm_out(label, job.model, reply) for label, job, reply in zip(labels, jobs, replies, strict=True)],
        timing_ms=_timing(replies, time.perf_counter() - request.state.started),
    )


def _check_size(images: int, arms: int, most: int) -> None:
    """As large a request of captions always finds room in an empty queue, so this one does too."""
    if images * arms > most:
        detail = f"images: {images} x {arms} arms is {images * arms}; at most {most} are allowed in one request"
        raise RequestError("invalid_request", detail)


def _jobs(services: Services, request_id: str, asked: CompareOptions) -> tuple[list[str], list[CaptionJob]]:
    described = [
        describe(
            arm.model or services.models.default, arm, arm.decode.model_dump(exclude_none=True) if arm.decode else {}
        )
        for arm in asked.arms
    ]
    labels = label_arms([arm.label for arm in asked.arms], described)
    jobs = []
    for label, arm in zip(labels, asked.arms, strict=True):
        with _naming(label):
            jobs.append(caption_job(services, request_id, _options(arm, asked)))
    return labels, jobs


def _options(arm: ArmInput, asked: CompareOptions) -> CaptionOptions:
    own = {name: getattr(arm, name) for name in HowToCaption.model_fields}
    return CaptionOptions(**own, num_captions=asked.num_captions, score=asked.score)


async def _at_the_same_time(
    services: Services, labels: Sequence[str], jobs: Sequence[CaptionJob]
) -> list[CaptionReply]:
    """The replies in order; the first error ends the other arms too."""

    async def reply(label: str, job: CaptionJob) -> CaptionReply:
        with _naming(label):
            return await services.backend.caption(job)

    tasks = [asyncio.create_task(reply(label, job)) for label, job in zip(labels, jobs, strict=True)]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


@contextmanager
def _naming(label: str) -> Iterator[None]:
    """What is wrong with an arm is told with its label; that there is no room concerns them all."""
    try:
        yield
    except (RequestError, UnknownNameError) as error:
        raise type(error)(error.code, f"arm {label[:64]!r}: {error.detail}") from error


def _codes(replies: Sequence[CaptionReply]) -> list[str]:
    """Of the errors, one that an image has in several arms once."""
    found = {(index, image.error.code) for reply in replies for index, image in enumerate(reply.results) if image.error}
    return [code for _, code in found]


def _arm_out(label: str, model: str, reply: CaptionReply) -> ArmOut:
    results = [IndexedResult(index=index, **result_of(image).model_dump()) for index, image in enumerate(reply.results)]
    return ArmOut(label=label, model=model, results=results)


def _timing(replies: Sequence[CaptionReply], total_s: float) -> TimingOut:
    timings = [reply.timing_ms for reply in replies]
    return TimingOut(
        queue=max(timing.queue for timing in timings),
        encode=sum(timing.encode for timing in timings),
        decode=sum(timing.decode for timing in timings),
        score=sum(timing.score for timing in timings),
        total=total_s * 1000,
    )
