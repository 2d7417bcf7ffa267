"""Which queues were full a moment ago, so that the ingress can refuse what would not fit without asking the captioner.

A refusal there costs the process that owns the model: at four times the load it would be busy with refusing.
"""

import time
from collections.abc import Callable

from models.errors import OverloadedError

_LONGEST_S = 1.0
"""Clients that leave make room that the pace of the passes does not foretell."""


class FullQueues:
    """Remembers refusals by model for as long as the captioner said that there will be little room. Meanwhile requests
    of as many images are refused in the same words; smaller ones are not. The queue does not run empty in that time,
    so nothing that could have been done is left undone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused: dict[str, tuple[float, int, OverloadedError]] = {}

    def check(self, model: str, images: int) -> None:
        """Raise the refusal that the captioner would give."""
        until, fewest, error = self._refused.get(model, (0.0, 0, None))
        if error is not None and images >= fewest and self._clock() < until:
            raise OverloadedError(error.code, error.detail, error.retry_after_s)

    def note(self, model: str, images: int, error: OverloadedError) -> None:
        """Take in a refusal of the captioner's."""
        if error.full_for_s > 0:
            until = self._clock() + min(error.full_for_s, _LONGEST_S)
            self._refused[model] = (until, images, error)
