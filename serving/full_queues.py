"""Which queues were full a moment ago, so that the ingress can refuse what would not fit without asking the captioner.

A refusal there costs the process that owns the model: at four times the load it would be busy with refusing.
"""

import time
from collections.abc import Callable, Collection

from models.errors import OverloadedError

_LONGEST_S = 1.0
"""Clients that leave make room that the pace of the passes does not foretell."""
_NEVER: tuple[float, int, OverloadedError | None] = (0.0, 0, None)


class FullQueues:
    """Remembers refusals by model for as long as the captioner said that there will be little room. Meanwhile requests
    of as many images are refused in the same words; smaller ones are not. The queue does not run empty in that time,
    so nothing that could have been done is left undone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused: dict[str, tuple[float, int, OverloadedError]] = {}

    def check(self, model: str, images: int) -> None:
        """Raise the refusal that the captioner would give."""
        until, fewest, error = self._refused.get(model, _NEVER)
        if error is not None and images >= fewest and self._clock() < until:
            raise _again(error)

    def refusal(self, models: Collection[str]) -> OverloadedError | None:
        """What a request for captions gets now whatever it asks for: none of these models has room for one image."""
        latest = None
        for model in models:
            until, fewest, latest = self._refused.get(model, _NEVER)
            if latest is None or fewest > 1 or self._clock() >= until:
                return None
        return None if latest is None else _again(latest)

    def note(self, model: str, images: int, error: OverloadedError) -> None:
        """Take in a refusal of the captioner's."""
        if error.full_for_s > 0:
            until = self._clock() + min(error.full_for_s, _LONGEST_S)
            self._refused[model] = (until, images, error)


def _again(error: OverloadedError) -> OverloadedError:
    return OverloadedError(error.code, error.detail, error.retry_after_s)
