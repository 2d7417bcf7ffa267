"""The models that this application serves, by id, as the ingress knows them: from their cards, without weights."""

from collections.abc import Mapping
from typing import Self

from models.card import CaptionerCard
from models.catalog import find_captioner
from models.errors import UnknownNameError
from serving.args import AppArgs


class ServedModels:
    """Cards by model id in the order given at start; the first is the default."""

    def __init__(self, cards: Mapping[str, CaptionerCard]) -> None:
        self.cards = cards
        self.default = next(iter(cards))

    @classmethod
    def from_args(cls, args: AppArgs) -> Self:
        """The cards of ``args.models``.

        Raises:
            UnknownNameError: ``unknown_model``, also for a scorer.
            CheckpointError: a folder is no model.
        """
        entries = [find_captioner(model, args.models_dir) for model in args.models]
        return cls({entry.id: entry.card for entry in entries})

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
