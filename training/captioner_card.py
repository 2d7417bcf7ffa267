"""The card of a trained captioner."""

from collections.abc import Mapping

from models.card import CaptionerCard, FilePart, Measurement, WeightsCard
from models.catalog import find_captioner
from models.families.base import CardMaker
from training.captioner_config import CaptionerConfig
from training.data import Dataset
from training.git_revision import git_revision


def card_maker(config: CaptionerConfig, family: str, dataset: Dataset, values: Mapping[str, float]) -> CardMaker:
    """What makes the card once the files are written; ``values`` were measured on val."""
    report = dataset.report
    base = find_captioner(config.init).card if config.init else None
    measured = Measurement(
        split="val",
        images=report.images["val"],
        values=dict(values),
        decoding=config.select.decode,
        scorer=config.select.scorer,
    )

    def make(parts: dict[str, FilePart], files: dict[str, str]) -> WeightsCard:
        return WeightsCard(
            id=config.id,
            description=config.description,
            licence=config.licence,
            family=family,
            decoding=config.decoding or (base.decoding if base else None),
            objective=config.objective,
            data=[config.data.source(report)],
            origin=_origin(config, base),
            seed=config.seed,
            git_revision=git_revision(),
            measurements=[measured],
            files=files,
            parts=dict(parts),
        )

    return make


def _origin(config: CaptionerConfig, base: CaptionerCard | None) -> list[str]:
    if base is not None:
        return [f"{base.id} ({base.licence})", *base.origin]
    return [
        f"{config.model.vision}, ImageNet weights (Apache-2.0)",
        "BERT-uncased word pieces, all-MiniLM-L6-v2 word vectors (Apache-2.0)",
    ]
