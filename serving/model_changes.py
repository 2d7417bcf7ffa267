"""A replica's part in changes of what is served: it asks what is wanted and carries it out."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

from models.errors import CheckpointError, LimnerError, OverloadedError
from serving.model_registry import Seen, Versions, Wanted

logger = logging.getLogger(__name__)

ASK_EVERY_S = 0.5
_AGAIN_AFTER_S = 2.0

L = TypeVar("L")
Ask = Callable[[Seen], Awaitable[Wanted | None]]


class Shelf(Protocol[L]):
    """Where a replica has its models."""

    async def load(self, model: str) -> L:
        """A model from its files, ready to be used, beside those that are served. Raises LimnerError."""

    def put(self, model: str, loaded: L) -> None:
        """Serve it, in place of what had its id."""

    async def drop(self, model: str) -> None:
        """Serve it no more; returns when nobody uses it."""


class ModelChanges(Generic[L]):
    """Carries out what a registry wants on a shelf. For one event loop; ``run`` goes on until cancelled."""

    def __init__(
        self, replica: str, started_with: Iterable[str], shelf: Shelf[L], ask: Ask, *, captions: bool = True
    ) -> None:
        self._replica, self._shelf, self._ask, self._captions = replica, shelf, ask, captions
        self._have = dict.fromkeys(started_with, 0)
        self._revision = 0
        self._coming: tuple[str, int] | None = None
        self._loading: asyncio.Task[L] | None = None

    async def run(self) -> None:
        """Ask and carry out, again and again; what fails is tried again."""
        while True:
            try:
                await self.once()
                await asyncio.sleep(ASK_EVERY_S)
            except Exception as error:
                logger.warning("changes of the models are not carried out yet: %s", error)
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def first(self) -> None:
        """As ``once``, at the start of a replica, which must not fail of it: what is left is carried out later."""
        try:
            await self.once()
        except OverloadedError:  # the registry may start later; then there were no changes yet, or they come soon
            pass
        except LimnerError as error:  # of a model that came since, whose files are gone, say
            logger.error("started without a model that the others serve: %s", error)

    async def once(self) -> None:
        """Ask, and carry out what is wanted.

        Raises:
            LimnerError: the registry does not answer, or a model cannot be loaded.
        """
        wanted = await self._ask(self._seen())
        if wanted is None:
            return
        prepared = await self._take_up(wanted)
        failures = []
        for model, revision in wanted.models:
            if self._have.get(model) != revision:
                ready = prepared.get((model, revision))
                try:
                    self._shelf.put(model, await (ready if ready is not None else self._shelf.load(model)))
                    self._have[model] = revision
                except Exception as error:  # the others are carried out all the same
                    failures.append((model, error))
        for model in self._have.keys() - dict(wanted.models).keys():
            await self._shelf.drop(model)
            del self._have[model]
        if failures:
            raise _refusal(*failures[0])
        self._revision = wanted.revision

    async def _take_up(self, wanted: Wanted) -> dict[tuple[str, int], Awaitable[L]]:
        """Begin to load what is coming; returns what came before."""
        if wanted.coming == self._coming:
            return {}
        before, self._coming = (self._coming, self._loading), wanted.coming
        self._loading = None
        if wanted.coming is not None:
            self._loading = asyncio.create_task(self._shelf.load(wanted.coming[0]))
        if before[0] in wanted.models and before[1] is not None:
            return {before[0]: before[1]}
        if before[1] is not None:
            before[1].cancel()
        return {}

    def _seen(self) -> Seen:
        versions: Versions = tuple(self._have.items())
        seen = Seen(self._replica, self._captions, self._revision, versions)
        if self._loading is None or not self._loading.done() or self._loading.cancelled():
            return seen
        assert self._coming is not None
        error = self._loading.exception()
        failure = _refusal(self._coming[0], error) if error is not None else None
        return Seen(self._replica, self._captions, self._revision, versions, self._coming, failure)


def _refusal(model: str, error: BaseException) -> LimnerError:
    """Why a model cannot be served, in words for whoever asked for it."""
    if isinstance(error, LimnerError):
        return error
    logger.error("model %r cannot be loaded", model, exc_info=error)
    return CheckpointError("bad_config", f"model {model!r} cannot be loaded: {type(error).__name__}: {error}")
