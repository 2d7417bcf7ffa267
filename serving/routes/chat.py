"""POST /v1/chat/completions: captions through OpenAI's chat API."""

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from serving.admission import admit
from serving.bodies import given_images, read_json
from serving.chat_inputs import options_of, pictures_of
from serving.chat_outputs import completion_of, events_of
from serving.client_watch import unless_gone
from serving.jobs import caption_job
from serving.messages import CaptionedImage
from serving.openai_errors import openai_responses
from serving.openai_schemas import ChatChunk, ChatCompletion, ChatRequest
from serving.openapi import event_stream, json_form
from serving.problems import refuse
from serving.services import ServicesDep
from serving.url_requests import with_images
from serving.validation import validated

router = APIRouter()

_ERRORS = openai_responses(
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
    "/v1/chat/completions",
    response_model=ChatCompletion,
    responses={200: event_stream(ChatChunk), **_ERRORS},
    openapi_extra=json_form(ChatRequest),
    tags=["OpenAI"],
)
async def chat_completions(request: Request, services: ServicesDep) -> Response | ChatCompletion:
    """Caption the pictures of the last user message, one caption per line, for clients of OpenAI's API.

    Text is not read, since the models take no instructions; nor are earlier messages. One bad image fails the request.
    A stream comes in one go, when the captions are complete. Errors have OpenAI's form.
    """
    asked = validated(ChatRequest, await read_json(request))
    images = given_images(pictures_of(asked.messages), services)
    card = services.models.cards[services.models.resolve(asked.model)]
    options = options_of(asked, card.decoding, services.args.limits.max_rows)
    job = caption_job(services, request.state.request_id, options)
    admit(request, job.model, len(images))
    reply = await unless_gone(
        request,
        with_images(request, services, images, lambda found: services.backend.caption(replace(job, images=found))),
    )
    if refusal := _refusal(request, reply.results):
        return refusal
    completion = completion_of(job, reply.results)
    if not asked.stream:
        return completion
    with_usage = asked.stream_options is not None and asked.stream_options.include_usage is True
    return Response(
        "".join(events_of(completion, include_usage=with_usage)),
        media_type="text/event-stream",
        headers={"cache-control": "no-cache"},
    )


def _refusal(request: Request, results: tuple[CaptionedImage, ...]) -> Response | None:
    """The error of the first bad image, which says its number where there are several; None: all are good."""
    for number, image in enumerate(results, start=1):
        if image.error is not None:
            where = f"image {number} of {len(results)}: " if len(results) > 1 else ""
            return refuse(request, image.error.code, where + image.error.detail)
    return None
