"""Decoding strategies: how captions are searched for in what a captioner predicts.

The table names every strategy; ``parse_decode`` turns ``{"name": ..., "options": {...}, "guidance": ...}`` into one.
Neither loads torch, so that the HTTP layer can check a request without it; ``models.decoding.loop`` runs a strategy.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from models.card import MAX_GUIDANCE, Decoding
from models.decoding.options import explain, short
from models.decoding.strategy import Strategy
from models.errors import RequestError, UnknownNameError
from models.lookup import resolve

STRATEGIES: dict[str, str] = {
    "greedy": "models.decoding.greedy:Greedy",
    "beam": "models.decoding.beam:Beam",
    "diverse_beam": "models.decoding.diverse_beam:DiverseBeam",
    "sample": "models.decoding.sample:Sample",
}

DEFAULT_STRATEGY = "beam"
_KEYS = frozenset({"name", "options", "guidance"})


def parse_decode(raw: Mapping[str, Any] | None, default: Decoding | None = None) -> Strategy:
    """The strategy that ``{"name": ..., "options": {...}, "guidance": ...}`` asks for; without guidance, that is 1.

    Args:
        raw: None stands for ``default``, guidance alone for ``default`` with that guidance.
        default: such as a card's ``decoding``; None is beam search with 3 beams.

    Raises:
        RequestError: ``invalid_request``; the detail names the key or option, its value and what is allowed.
    """
    own = default.model_dump() if default else {"name": DEFAULT_STRATEGY}
    if raw is None:
        raw = own
    if not isinstance(raw, Mapping):
        raise _refusal(f"decode must be an object with 'name' and 'options', not {type(raw).__name__}")
    unknown = sorted(str(key) for key in raw if key not in _KEYS)
    if unknown:
        raise _refusal(f"decode has no key {unknown[0]!r}; allowed: {', '.join(sorted(_KEYS))}")
    if raw.keys() == {"guidance"}:
        raw = {**own, **raw}
    name, options, guidance = raw.get("name"), raw.get("options", {}), raw.get("guidance", 1.0)
    if not isinstance(name, str):
        raise _refusal(f"decode.name must be one of {', '.join(sorted(STRATEGIES))}; got {name!r}")
    if not isinstance(options, Mapping):
        raise _refusal(f"decode.options must be an object, not {type(options).__name__}")
    if isinstance(guidance, bool) or not isinstance(guidance, int | float) or not 0 <= guidance <= MAX_GUIDANCE:
        raise _refusal(f"decode.guidance is {short(guidance)}; allowed: a number from 0 to {MAX_GUIDANCE:g}")
    try:
        strategy: type[Strategy] = resolve("decoding strategy", STRATEGIES, name)
        return strategy(strategy.Options.model_validate(dict(options)), float(guidance))
    except UnknownNameError as error:
        raise _refusal(error.detail) from error
    except ValidationError as error:
        raise _refusal(explain(error, name, strategy.Options)) from error


def _refusal(detail: str) -> RequestError:
    return RequestError("invalid_request", detail)
