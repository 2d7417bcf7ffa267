"""Decoding strategies: how captions are searched for in what a captioner predicts.

The table names every strategy; ``parse_decode`` turns ``{"name": ..., "options": {...}}`` into one. Neither loads
torch, so that the HTTP layer can check a request without it; ``models.decoding.loop`` runs a strategy.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from models.card import Named
from models.decoding.options import explain
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
_KEYS = frozenset({"name", "options"})


def parse_decode(raw: Mapping[str, Any] | None, default: Named | None = None) -> Strategy:
    """The strategy that ``{"name": ..., "options": {...}}`` asks for.

    Args:
        default: what None stands for, such as a card's ``decoding``; beam search with 3 beams where that is None too.

    Raises:
        RequestError: ``invalid_request``; the detail names the key or option, its value and what is allowed.
    """
    if raw is None:
        raw = default.model_dump() if default else {"name": DEFAULT_STRATEGY}
    if not isinstance(raw, Mapping):
        raise _refusal(f"decode must be an object with 'name' and 'options', not {type(raw).__name__}")
    unknown = sorted(str(key) for key in raw if key not in _KEYS)
    if unknown:
        raise _refusal(f"decode has no key {unknown[0]!r}; allowed: {', '.join(sorted(_KEYS))}")
    name, options = raw.get("name"), raw.get("options", {})
    if not isinstance(name, str):
        raise _refusal(f"decode.name must be one of {', '.join(sorted(STRATEGIES))}; got {name!r}")
    if not isinstance(options, Mapping):
        raise _refusal(f"decode.options must be an object, not {type(options).__name__}")
    try:
        strategy: type[Strategy] = resolve("decoding strategy", STRATEGIES, name)
        return strategy(strategy.Options.model_validate(dict(options)))
    except UnknownNameError as error:
        raise _refusal(error.detail) from error
    except ValidationError as error:
        raise _refusal(explain(error, name, strategy.Options)) from error


def _refusal(detail: str) -> RequestError:
    return RequestError("invalid_request", detail)
