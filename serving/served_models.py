"""The models that this application serves, by id, as the ingress knows them: from their cards, without weights."""

from collections.abc import Mapping
from typing import Self

from models.card import WeightsCard
from models.catalog import find_model
from models.errors import UnknownNameError
from serving.args import AppArgs


class ServedModels:
    """Cards by model id in the order given at start; the first is the default."""

    def __init__(self, cards: Mapping[str, WeightsCard]) -> None:
        self.cards = cards
        self.default = next(iter(cards))

    @classmethod
    def from_args(cls, args: AppArgs) -> Self:
        """The cards of ``args.models``.

        Raises:
            UnknownNameError: ``unknown_model``, also for a scorer.
            CheckpointError: a folder is no model.
        """
        cards: dict[str, WeightsCard] = {}
        for model in args.models:
            entry = find_model(model, args.models_dir)
            if not isinstance(entry.card, WeightsCard):
                raise UnknownNameError("unknown_model", f"{entry.id!r} is a {entry.card.kind}; a captioner is needed")
            cards[entry.id] = entry.card
        return cls(cards)

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
