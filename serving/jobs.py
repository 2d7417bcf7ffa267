"""From what a request asks to a job for the captioner; what cannot be had is refused here. Loads no torch."""

from collections.abc import Sequence
from typing import Any, Protocol

from models.decoding import DEFAULT_STRATEGY, parse_decode
from models.decoding.strategy import Strategy
from models.errors import RequestError
from serving.messages import CaptionJob, Failure
from serving.points import Knobs, concise_end, point_of
from serving.schemas import DecodeInput
from serving.services import Services


class Asked(Knobs, Protocol):
    """What a caption request may say besides its images."""

    @property
    def model(self) -> str | None: ...
    @property
    def decode(self) -> DecodeInput | None: ...
    @property
    def num_captions(self) -> int: ...
    @property
    def score(self) -> bool | None: ...
    @property
    def min_clip_score(self) -> float | None: ...


def caption_job(
    services: Services, request_id: str, asked: Asked, images: Sequence[bytes | Failure] = ()
) -> CaptionJob:
    """The job that answers a request; its images may be put in later, once they have been fetched.

    Raises:
        UnknownNameError: ``unknown_model``, or a direction that there is not.
        RequestError: ``invalid_request`` or ``unsupported_option``.
    """
    model = services.models.resolve(asked.model)
    card = services.models.cards[model]
    point = point_of(model, card, asked)
    strategy = parse_decode(_given(asked.decode) if asked.decode else None, card.decoding)
    rerank = asked.decode is not None and asked.decode.rerank is not None
    _check_rows(strategy, asked.num_captions, services.args.limits.max_rows)
    fallback = concise_end(card)
    if asked.min_clip_score is not None and fallback is None:
        raise RequestError(
            "unsupported_option", f"min_clip_score: model {model!r} has no spectrum, so no concise end to fall back to"
        )
    if asked.score is False and (rerank or asked.min_clip_score is not None):
        raise RequestError("invalid_request", "score: false does not go with decode.rerank or min_clip_score")
    return CaptionJob(
        request_id=request_id,
        model=model,
        images=tuple(images),
        strategy=strategy,
        num_captions=asked.num_captions,
        score=asked.score,
        point=point,
        rerank=rerank,
        min_clip_score=asked.min_clip_score,
        fallback=fallback if asked.min_clip_score is not None else None,
    )


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
