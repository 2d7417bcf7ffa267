"""From a chat request to what a caption request says: its pictures, its options, its decoding. Loads no torch."""

from collections.abc import Sequence
from typing import Any

from models.card import Decoding
from models.decoding import parse_decode
from models.decoding.options import SharedOptions
from models.decoding.sample import Sample
from models.decoding.strategy import Strategy
from models.errors import RequestError
from serving.openai_schemas import ChatMessage, ChatRequest
from serving.schemas import CaptionOptions, DecodeInput, ImageInput

_FEWEST_BEAMS = 3
_MOST_TOKENS = 512  # of SharedOptions; clients that ask for thousands mean "no limit"
_LOWEST_TEMPERATURE = 0.01  # of Sample; what is nearer to 0 gives the same
_LOWEST_TOP_P = 1e-6  # Sample wants more than 0; this leaves one token as well
_SEEDS = 2**63
_IN_DECODE = ("temperature", "top_p", "seed", "max_tokens", "max_completion_tokens")


def pictures_of(messages: Sequence[ChatMessage]) -> list[ImageInput]:
    """The pictures of the last user message, in order, at least one.

    Raises:
        RequestError: ``invalid_request``.
    """
    last = next((message for message in reversed(messages) if message.role == "user"), None)
    parts = last.content if last is not None and isinstance(last.content, list) else []
    urls = [part.image_url.url for part in parts if part.type == "image_url" and part.image_url is not None]
    if not urls:
        detail = (
            "messages: the last user message has no picture to caption: give it as a part "
            '{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,..."}}'
        )
        raise RequestError("invalid_request", detail)
    return [ImageInput(base64=url) if _is_data(url) else ImageInput(url=url) for url in urls]


def options_of(asked: ChatRequest, own: Decoding | None, max_rows: int) -> CaptionOptions:
    """The options of the caption request that ``asked`` stands for.

    Args:
        own: the model's decoding, as its card has it.
        max_rows: most captions x beams of one picture.

    Raises:
        RequestError: ``invalid_request``.
    """
    return CaptionOptions(
        model=asked.model,
        descriptiveness=asked.descriptiveness,
        mix=asked.mix,
        target_words=asked.target_words,
        decode=_decode(asked, own, max_rows),
        num_captions=asked.n or 1,
        score=asked.score,
    )


def _is_data(url: str) -> bool:
    return url.lstrip()[:5].lower() == "data:"


def _decode(asked: ChatRequest, own: Decoding | None, max_rows: int) -> DecodeInput:
    if asked.decode is not None:
        twice = [name for name in _IN_DECODE if getattr(asked, name) is not None]
        if twice:
            raise RequestError("invalid_request", f"{twice[0]}: does not go with decode; say it in decode.options")
        return asked.decode
    strategy = parse_decode(None, own)
    if _wants_sampling(asked):
        name, options = _sampling(asked, strategy)
    else:
        name, options = _enough_captions(strategy, asked.n or 1, max_rows)
    if asked.most_tokens is not None:
        options["max_tokens"] = min(asked.most_tokens, _MOST_TOKENS)
        options["min_tokens"] = min(options["min_tokens"], options["max_tokens"])
    if asked.seed is not None and name == Sample.name:
        options["seed"] = asked.seed % _SEEDS
    return DecodeInput(name=name, options=options, guidance=strategy.guidance)


def _wants_sampling(asked: ChatRequest) -> bool:
    if asked.temperature is None:
        return asked.top_p is not None and asked.top_p < 1
    return asked.temperature > 0


def _sampling(asked: ChatRequest, own: Strategy) -> tuple[str, dict[str, Any]]:
    """Sampling with what the model's own decoding says of all strategies, or, where it samples, with all it says."""
    options = own.options.model_dump() if own.name == Sample.name else _shared(own)
    if asked.temperature is not None:
        options["temperature"] = max(asked.temperature, _LOWEST_TEMPERATURE)
    if asked.top_p is not None:
        options["top_p"] = max(asked.top_p, _LOWEST_TOP_P)
    return Sample.name, options


def _enough_captions(own: Strategy, captions: int, max_rows: int) -> tuple[str, dict[str, Any]]:
    """The model's own decoding, or, where it cannot give as many captions, a beam search that can."""
    if own.most_captions is None or captions <= own.most_captions:
        return own.name, own.options.model_dump()
    beams = max(_FEWEST_BEAMS, captions)
    if captions * beams > max_rows:
        detail = (
            f"n: {captions} captions without sampling take {beams} beams, and at most {max_rows} captions x beams are "
            "allowed: ask for fewer, or set a temperature above 0"
        )
        raise RequestError("invalid_request", detail)
    options = own.options.model_dump() if own.name == "beam" else _shared(own)
    return "beam", {**options, "beams": beams}


def _shared(own: Strategy) -> dict[str, Any]:
    return {name: getattr(own.options, name) for name in SharedOptions.model_fields}
