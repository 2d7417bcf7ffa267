"""A models folder with a tiny spectrum, ``dial``, whose captions differ along the way."""

from pathlib import Path

from models.card import CARD_FILE, SpectrumCard, dump_card
from models.catalog import find_captioner
from models.mixing.mix import Mix
from models.mixing.spectrum import path_through, write_spectrum
from tests.models.mixing.tiny_space import write_space


def write_dial(root: Path) -> Path:
    """The folder, now with ``base``, ``smile``, ``contrastive`` and ``dial``, calibrated with made-up numbers."""
    write_space(root)
    directions = {name: find_captioner(name, root) for name in ("smile", "contrastive")}
    mix = Mix("dial", find_captioner("base", root), directions, dict.fromkeys(directions, 0.0), models_dir=root)
    grid = path_through([(0.5, {"smile": 1.0}), (1.0, {"smile": 3.0, "contrastive": 3.0})], list(directions))
    card: SpectrumCard = write_spectrum(root / "dial", mix, grid, 0.25)
    points = [
        point.model_copy(update={"expected_words": 10 + 4 * point.descriptiveness, "measures": {"clip_score": 0.7}})
        for point in card.grid
    ]
    (root / "dial" / CARD_FILE).write_text(dump_card(card.model_copy(update={"grid": points})), encoding="utf-8")
    return root
