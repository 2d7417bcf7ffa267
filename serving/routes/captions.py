"""POST /v1/captions: images in, captions out."""

import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from models.card import Decoding
from models.decoding import DEFAULT_STRATEGY, parse_decode
from models.decoding.strategy import Strategy
from models.errors import RequestError, UnknownNameError
from serving import metrics
from serving.bodies import read_caption_request
from serving.client_watch import unless_gone
from serving.errors import problem_responses
from serving.messages import CaptionJob, CaptionReply
from serving.openapi import caption_forms
from serving.problems import refuse
from serving.results import failures, result_of
from serving.schemas import CaptionOptions, CaptionResponse, DecodeInput, IndexedResult, TimingOut
from serving.services import ServicesDep

router = APIRouter()

_NO_SPECTRUM = ("descriptiveness", "mix", "target_words")
_ERRORS = problem_responses(
    *("malformed_json", "malformed_body", "truncated", "not_an_image", "empty", "too_small", "bad_base64"),
    *("url_refused", "unknown_model", "unknown_experiment", "body_timeout", "body_too_large", "too_large"),
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
    limits = services.args.limits
    options, images = await read_caption_request(request, limits.max_images)
    model = services.models.resolve(options.model)
    strategy = _strategy(options, model, services.models.cards[model].decoding, limits.max_rows)
    job = CaptionJob(request.state.request_id, model, images, strategy, options.num_captions, options.score)
    reply = await unless_gone(request, services.backend.caption(job))
    failed = failures(reply.results)
    if len(failed) == len(reply.results):
        return refuse(request, failed[0].code, failed[0].detail)
    for failure in failed:
        services.reporter.count(metrics.ERRORS, failure.code)
    return _response(job, reply, time.perf_counter() - request.state.started)


def _strategy(options: CaptionOptions, model: str, default: Decoding | None, max_rows: int) -> Strategy:
    """The decoding strategy of a request, once everything that cannot be had is refused."""
    if options.experiment is not None:
        raise UnknownNameError("unknown_experiment", f"no experiment {options.experiment!r} runs here")
    for name in _NO_SPECTRUM:
        if getattr(options, name) is not None:
            raise RequestError("unsupported_option", f"{name}: model {model!r} has no spectrum and no directions")
    if options.min_clip_score is not None:
        raise RequestError("unsupported_option", "min_clip_score: this server cannot filter by score yet")
    if options.decode is not None and options.decode.rerank is not None:
        raise RequestError("unsupported_option", "decode.rerank: this server does not offer it yet")
    strategy = parse_decode(_given(options.decode) if options.decode else None, default)
    _check_rows(strategy, options.num_captions, max_rows)
    return strategy


def _given(decode: DecodeInput) -> dict[str, Any] | None:
    """What ``parse_decode`` reads; None where nothing is given, which is the model's own."""
    given = {name: value for name in ("name", "options", "guidance") if (value := getattr(decode, name)) is not None}
    return {"name": DEFAULT_STRATEGY, **given} if "options" in given else given or None


def _check_rows(strategy: Strategy, num_captions: int, max_rows: int) -> None:
    strategy.rows(num_captions)  # refuses more captions than the strategy can give
    beams = strategy.most_captions or 1
    if num_captions * beams > max_rows:
        detail = (
            f"num_captions {num_captions} x beams {beams} is {num_captions * beams}; at most {max_rows} are allowed"
        )
        raise RequestError("invalid_request", detail)


def _response(job: CaptionJob, reply: CaptionReply, total_s: float) -> CaptionResponse:
    timing = reply.timing_ms
    return CaptionResponse(
        id=job.request_id,
        model=job.model,
        results=[
            IndexedResult(index=index, **result_of(image).model_dump()) for index, image in enumerate(reply.results)
        ],
        timing_ms=TimingOut(
            queue=timing.queue,
            encode=timing.encode,
            decode=timing.decode,
            score=timing.score,
            total=total_s * 1000,
        ),
    )
