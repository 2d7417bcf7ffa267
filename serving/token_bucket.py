"""A rate with room for bursts: what one client may spend."""

import math
import time
from collections.abc import Callable


class TokenBucket:
    """Fills evenly with ``per_minute`` tokens and holds at most one minute's worth. Not for several threads."""

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_minute / 60
        self._most = per_minute
        self._clock = clock
        self._held = per_minute
        self._at = clock()

    def spend(self, tokens: int) -> int | None:
        """Take them and return None; where there are too few, take none and return the whole seconds until there are.

        More than it can hold at once are given when it is full; what is missing then is owed.
        """
        now = self._clock()
        self._held = min(self._most, self._held + (now - self._at) * self._per_s)
        self._at = now
        missing = min(float(tokens), self._most) - self._held
        if missing > 1e-9:  # less is rounding
            return max(1, math.ceil(missing / self._per_s))
        self._held -= tokens
        return None
