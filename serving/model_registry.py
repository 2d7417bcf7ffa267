"""Which models are to be served, while that changes: the one place that decides, which every replica keeps asking.

A change is made in two steps, so that no request fails of it: all captioner replicas load the new version beside what
they serve, and only when all have it does it count; a model that goes is hidden from the ingresses first.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from models.errors import LimnerError, OverloadedError, RequestError, UnknownNameError

ALIVE_S = 5.0
"""A replica that has not asked for so long is gone."""
_POLL_S = 0.05
_APPLIED_WITHIN_S = (
    5.0  # what comes later does no harm: an ingress refuses a new model, a captioner still has an old one
)

Versions = tuple[tuple[str, int], ...]
"""Models, the default first, and the revision that made each what it is; 0: as when the application started."""


@dataclass(frozen=True)
class Wanted:
    """What is to be served."""

    revision: int
    """Of the last change that is part of it."""
    models: Versions
    coming: tuple[str, int] | None = None
    """To be loaded, but not served yet; for captioners."""


@dataclass(frozen=True)
class Seen:
    """What a replica tells of itself when it asks."""

    replica: str
    captions: bool
    """Whether it is a captioner's."""
    revision: int = 0
    """That it has carried out."""
    models: Versions = ()
    loaded: tuple[str, int] | None = None
    """What was coming and is loaded, or could not be."""
    failure: LimnerError | None = None
    """Why it could not be."""


class ModelRegistry:
    """Of the models that an application starts with, and those that come and go while it runs. For one event loop."""

    def __init__(self, started_with: Iterable[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._models = dict.fromkeys(started_with, 0)
        self._default = next(iter(self._models))
        self._hidden: set[str] = set()
        self._coming: tuple[str, int] | None = None
        self._revision = 0
        self._clock = clock
        self._replicas: dict[str, tuple[Seen, float]] = {}
        self._one_change = asyncio.Lock()
        self._knows = False
        """Whether a captioner has asked: a registry that was started anew knows nothing of earlier changes itself."""

    def sync(self, seen: Seen) -> Wanted | None:
        """What this replica is to serve; None: as before, since that is not known yet."""
        self._replicas[seen.replica] = (seen, self._clock())
        if seen.captions:
            self._knows = True
            if seen.revision > self._revision:
                self._models, self._revision = dict(seen.models), seen.revision
        if not self._knows:
            return None
        offered = self._models.items() if seen.captions else self._offered()
        return Wanted(self._revision, tuple(offered), self._coming if seen.captions else None)

    async def put(self, model: str, *, within_s: float = 300.0) -> bool:
        """Serve this model, or its present files in place of those it was loaded from; whether it is new.

        Raises:
            LimnerError: what a replica found wrong with it; nothing has changed then.
            OverloadedError: ``unavailable``, no captioner answers, or it was not loaded in time.
        """
        async with self._one_change:
            self._coming = coming = (model, self._next_revision())
            try:
                async with asyncio.timeout(within_s):
                    while not self._all_loaded(coming):
                        await asyncio.sleep(_POLL_S)
            except TimeoutError:
                raise OverloadedError("unavailable", f"{model!r} was not loaded within {within_s:g} s") from None
            finally:
                self._coming = None
            new = model not in self._models
            self._models[model] = coming[1]
            self._next_revision()
            await self._applied()
            return new

    async def remove(self, model: str) -> None:
        """Serve this model no more.

        Raises:
            UnknownNameError: ``unknown_model``.
            RequestError: ``invalid_request`` for the default model.
        """
        async with self._one_change:
            if model not in self._models:
                served = ", ".join(self._models)
                raise UnknownNameError("unknown_model", f"no model {model[:200]!r} is served here; there are: {served}")
            if model == self._default:
                raise RequestError("invalid_request", f"{model!r} is the default model: requests may name none")
            self._hidden.add(model)
            self._next_revision()
            try:
                await self._applied(captioners=False)
                del self._models[model]
            finally:  # else a caller that leaves now would leave a model that is neither there nor away
                self._hidden.discard(model)
                self._next_revision()
            await self._applied()

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision

    def _offered(self) -> list[tuple[str, int]]:
        return [entry for entry in self._models.items() if entry[0] not in self._hidden]

    def _alive(self) -> list[Seen]:
        now = self._clock()
        self._replicas = {name: entry for name, entry in self._replicas.items() if now - entry[1] < ALIVE_S}
        return [seen for seen, _ in self._replicas.values()]

    def _all_loaded(self, coming: tuple[str, int]) -> bool:
        captioners = [seen for seen in self._alive() if seen.captions]
        if not captioners:
            raise OverloadedError("unavailable", "no captioner answers; try again when /readyz is 200")
        done = [seen for seen in captioners if seen.loaded == coming]
        for seen in done:
            if seen.failure is not None:
                raise seen.failure
        return len(done) == len(captioners)

    async def _applied(self, *, captioners: bool = True) -> None:
        """Return when every replica has carried out the last change, or after some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_APPLIED_WITHIN_S):
                while any(seen.revision < self._revision for seen in self._alive() if captioners or not seen.captions):
                    await asyncio.sleep(_POLL_S)
