"""POST /v1/score: images and captions in, CLIPScores out."""

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from models.errors import RequestError
from serving import metrics
from serving.admission import admit
from serving.bodies import given_images, read_json
from serving.client_watch import unless_gone
from serving.errors import problem_responses
from serving.messages import ScoreJob
from serving.openapi import json_form
from serving.problems import refuse
from serving.results import failures, item_error
from serving.schemas import ScoreRequest, ScoreResponse, ScoreResult
from serving.services import ServicesDep
from serving.url_requests import with_images
from serving.validation import validated

router = APIRouter()

_ERRORS = problem_responses(
    *("malformed_json", "truncated", "not_an_image", "empty", "too_small", "bad_base64", "url_refused"),
    *(
        "url_failed",
        "unknown_model",
        "body_timeout",
        "body_too_large",
        "too_large",
        "unsupported_media_type",
        "unsupported_format",
    ),
    *("invalid_request", "unsupported_option", "queue_full", "unavailable", "shutting_down", "deadline_exceeded"),
)


@router.post(
    "/v1/score",
    response_model=ScoreResponse,
    responses=_ERRORS,
    openapi_extra=json_form(ScoreRequest),
    tags=["captions"],
)
async def score(request: Request, services: ServicesDep) -> Response | ScoreResponse:
    """CLIPScore of given captions; bad images fail alone, as in `/v1/captions`."""
    limits = services.args.limits
    asked = validated(ScoreRequest, await read_json(request))
    images = given_images(asked.images, services)
    if any(len(texts) > limits.max_rows for texts in asked.captions):
        raise RequestError("invalid_request", f"captions: at most {limits.max_rows} for one image")
    model = services.models.resolve(asked.model)
    texts = tuple(tuple(texts) for texts in asked.captions)
    job = ScoreJob(request.state.request_id, model, (), texts)
    admit(request, model, len(images))
    reply = await unless_gone(
        request,
        with_images(request, services, images, lambda found: services.backend.score(replace(job, images=found))),
    )
    failed = failures(reply.results)
    if len(failed) == len(reply.results):
        return refuse(request, failed[0].code, failed[0].detail)
    for failure in failed:
        services.reporter.count(metrics.ERRORS, failure.code)
    return ScoreResponse(
        id=job.request_id,
        model=model,
        results=[
            ScoreResult(
                index=index, clip_scores=list(image.clip_scores), scorer=image.scorer, error=item_error(image.error)
            )
            for index, image in enumerate(reply.results)
        ],
    )
