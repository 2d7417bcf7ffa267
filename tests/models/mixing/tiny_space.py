"""A models folder with a tiny compact captioner and two models "fine-tuned" from it."""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from models.card import DataSource, Decoding, FilePart, Named, SpectrumCard, WeightsCard
from models.catalog import find_captioner
from models.families.compact import CompactCaptioner
from models.mixing.mix import Mix
from models.mixing.spectrum import path_through, write_spectrum
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


def write_tiny_spectrum(root: Path, name: str = "tiny-dial", words: Sequence[float] | None = None) -> SpectrumCard:
    """A spectrum over the models of ``write_space``, as calibrated where ``words`` gives the words of its 21 points."""
    directions = {name: find_captioner(name, root) for name in ("smile", "contrastive")}
    anchors = [(0.5, {"smile": 1.0}), (1.0, {"smile": 0.5, "contrastive": 2.0})]
    grid = path_through(anchors, list(directions))
    if words is not None:
        grid = [
            point.model_copy(update={"expected_words": value, "measures": {"clip_score": 1 + place / 100}})
            for place, (point, value) in enumerate(zip(grid, words, strict=True))
        ]
    mix = Mix(name, find_captioner("base", root), directions, dict.fromkeys(directions, 0.0), "a dial", root)
    return write_spectrum(root / name, mix, grid, default=0.5)
