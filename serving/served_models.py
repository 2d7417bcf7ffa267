"""The models that this application serves, by id, as the ingress knows them: from their cards, without weights."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from models.card import CaptionerCard
from models.catalog import CaptionerEntry, find_captioner
from models.errors import RequestError, UnknownNameError
from serving.args import AppArgs


class ServedModels:
    """Cards by model id in the order given at start; the first is the default."""

    def __init__(self, cards: Mapping[str, CaptionerCard]) -> None:
        self.cards = dict(cards)
        self.default = next(iter(cards))

    @classmethod
    def from_args(cls, args: AppArgs) -> Self:
        """The cards of ``args.models``.

        Raises:
            UnknownNameError: ``unknown_model``, also for a scorer.
            CheckpointError: a folder is no model.
            RequestError: ``invalid_request``; two of them have the same id.
        """
        entries = [find_captioner(model, args.models_dir) for model in args.models]
        named = dict[str, str]()
        for word, entry in zip(args.models, entries, strict=True):
            if entry.id in named:
                detail = (
                    f"models: {named[entry.id]!r} and {word!r} are both called {entry.id!r}: leave out or rename one"
                )
                raise RequestError("invalid_request", detail)
            named[entry.id] = word
        return cls({entry.id: entry.card for entry in entries})

    def put(self, entry: CaptionerEntry) -> None:
        """Serve one more, or another version of one."""
        self.cards[entry.id] = entry.card

    def drop(self, model: str) -> None:
        """Serve one less."""
        del self.cards[model]

    def resolve(self, model: str | None) -> str:
        """The id that a request means.

        Raises:
            UnknownNameError: ``unknown_model``; the message lists what is served.
        """
        if model is None:
            return self.default
        if model not in self.cards:
            served = ", ".join(self.cards)
            raise UnknownNameError("unknown_model", f"no model {model!r} is served here; there are: {served}")
        return model


class CardShelf:
    """The ingress's part in changes of what is served (``serving.model_changes.Shelf``): cards come and go."""

    def __init__(self, models: ServedModels, models_dir: Path | None) -> None:
        self._models, self._models_dir = models, models_dir

    async def load(self, model: str) -> CaptionerEntry:
        """The card in the model's folder. Raises as ``find_captioner`` does."""
        return await asyncio.to_thread(find_captioner, model, self._models_dir)

    def put(self, model: str, loaded: CaptionerEntry) -> None:
        """Serve it."""
        self._models.put(loaded)

    async def drop(self, model: str) -> None:
        """Serve it no more."""
        self._models.drop(model)
