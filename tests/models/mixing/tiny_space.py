"""A models folder with a tiny compact captioner and two models "fine-tuned" from it."""

import copy
from collections.abc import Iterable
from pathlib import Path

import torch

from models.card import DataSource, Decoding, FilePart, Named, WeightsCard
from models.families.compact import CompactCaptioner
from tests.models.families.compact.tiny import tiny_captioner

DECODING = Decoding(name="beam", options={"beams": 2})


def save_tuned(folder: Path, captioner: CompactCaptioner, objective: str, terms: str = "research") -> None:
    """Write a captioner with a card that has a history."""

    def make_card(parts: dict[str, FilePart], files: dict[str, str]) -> WeightsCard:
        return WeightsCard(
            id=folder.name,
            family="compact",
            description=f"tuned by {objective}",
            licence=terms,
            objective=Named(name=objective),
            data=[DataSource(name="Flickr8k", split="train", images=6, captions=30, terms=terms)],
            origin=["ImageNet weights"],
            seed=7,
            decoding=DECODING if objective == "mle" else None,
            parts=dict(parts),
            files=files,
        )

    captioner.save(folder, make_card, {"recipe.yaml": objective})


def write_space(root: Path, directions: Iterable[str] = ("smile", "contrastive")) -> Path:
    """The folder, now with ``base`` and a model of each direction, whose decoder differs from the base's."""
    captioner = tiny_captioner()
    save_tuned(root / "base", captioner, "mle")
    for seed, name in enumerate(directions, 1):
        tuned = copy.deepcopy(captioner)
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in tuned.model.decoder.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.05)
        save_tuned(root / name, tuned, name)
    return root
